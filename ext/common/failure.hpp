// Exceptions of the C++ libraries. `status_of` turns them into statuses.
#pragma once

#include "bpeflow.h"

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

// An error in the file being written, as opposed to one being read.
struct OutputFailure : FileFailure {
    using FileFailure::FileFailure;
};

} // namespace bpeflow
