// What the functions of the C++ libraries have in common at the border to C.
#pragma once

#include "bpeflow.h"
#include "failure.hpp"

#include <cerrno>

namespace bpeflow {

// Calls `work`, and makes a status of what it throws.
template <typename Work> int status_of(const Work &work) noexcept {
    try {
        work();
        return BPEFLOW_OK;
    } catch (const FileFailure &failure) {
        errno = failure.error; // what has been closed and freed since may have changed it
        return failure.status;
    } catch (const Failure &failure) {
        return failure.status;
    } catch (...) { // std::bad_alloc and std::length_error: nothing else is thrown
        return BPEFLOW_NO_MEMORY;
    }
}

} // namespace bpeflow
