// Exceptions → statuses of the C interface.
#pragma once

#include "bpeflow.h"
#include "failure.hpp"

#include <cerrno>

namespace bpeflow {

// Call `work`. Return BPEFLOW_OK, or the status of the exception that it threw.
template <typename Work> int status_of(const Work &work) noexcept {
    try {
        work();
        return BPEFLOW_OK;
    } catch (const FileFailure &failure) {
        errno = failure.error; // destructors that ran since then may have changed it
        return failure.status;
    } catch (const Failure &failure) {
        return failure.status;
    } catch (...) { // std::bad_alloc or std::length_error: the libraries throw nothing else
        return BPEFLOW_NO_MEMORY;
    }
}

} // namespace bpeflow
