#include "instructions.hpp"

#include <cstring>

namespace bpeflow {
namespace {

struct Kind {
    const char *name, *and_worse;
    bool here;
    Classify classify;
};

#if defined(__x86_64__)
const Kind KINDS[] = {
    {"avx512", "avx512 avx2 sse2 scalar", __builtin_cpu_supports("avx512bw") != 0, classify_avx512},
    {"avx2", "avx2 sse2 scalar", __builtin_cpu_supports("avx2") != 0, classify_avx2},
    {"sse2", "sse2 scalar", true, classify_sse2},
    {"scalar", "scalar", true, classify_scalar},
};
#elif defined(__aarch64__) && defined(__ARM_NEON)
const Kind KINDS[] = {{"neon", "neon scalar", true, classify_neon}, {"scalar", "scalar", true, classify_scalar}};
#else
const Kind KINDS[] = {{"scalar", "scalar", true, classify_scalar}};
#endif

const Kind &best() {
    const Kind *kind = KINDS;
    while (!kind->here) kind++; // a processor that has one instruction set also has those after it
    return *kind;
}

} // namespace

const char *instructions() {
    return best().and_worse;
}

Classify find_classify(const char *name) {
    if (!name) return best().classify;
    for (const Kind &kind : KINDS)
        if (kind.here && std::strcmp(kind.name, name) == 0) return kind.classify;
    return nullptr;
}

} // namespace bpeflow
