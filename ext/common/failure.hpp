// What the C++ libraries throw; the border makes statuses of it.
#pragma once

#include "bpeflow.h"

namespace bpeflow {

// Thrown where there is no way to go on.
struct Failure {
    int status;
};

// … because of a file.
struct FileFailure : Failure {
    explicit FileFailure(int error) : Failure{BPEFLOW_IO}, error(error) {}

    int error; // errno
};

// … because of the file that is written, not one that is read.
struct OutputFailure : FileFailure {
    using FileFailure::FileFailure;
};

} // namespace bpeflow
