// Selecting the instruction set of the classifier at run time.
#pragma once

#include "masks.hpp"

namespace bpeflow {

// Return the names of the instruction sets that this processor supports, best first, separated by spaces. "scalar" is
// the last.
const char *instructions();

// Return the classifier for the named instruction set, or for the best one if `name` is null. Null if the name is
// unknown or the processor does not support it.
Classify find_classify(const char *name);

} // namespace bpeflow
