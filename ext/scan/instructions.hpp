// Which instructions make the masks, chosen when the program runs.
#pragma once

#include "masks.hpp"

namespace bpeflow {

// The kinds that this processor has, by name with spaces between them, best first; "scalar" is the last.
const char *instructions();

// What classifies by the kind of that name, or by the best where it is null. Null for an unknown or a missing one.
Classify find_classify(const char *name);

} // namespace bpeflow
