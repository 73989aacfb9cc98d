// Exceptions of the C++ libraries, and the statuses of the C interface that they become.
#pragma once

#include "bpeflow.h"

#include <cerrno>

namespace bpeflow {

// An error with its status.
struct Failure {
    int status;
};

// An error in opening, reading or writing a file.
struct FileFailure : Failure {
    explicit FileFailure(int error) : Failure{BPEFLOW_IO}, error(error) {}

    int error; // errno
};

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
