#include "kernels.hpp"

#include <cstring>

namespace bpeflow {
namespace {

struct Choice {
    const Kernels &kernels;
    const char *and_worse;
    bool here;
};

#if defined(__x86_64__)
bool has_avx512() noexcept {
    return __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512vl");
}
// All processors with AVX2 have the other two.
bool has_avx2() noexcept {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("bmi") && __builtin_cpu_supports("popcnt");
}

const Choice CHOICES[] = {
    {KERNELS_AVX512, "avx512 avx2 scalar", has_avx512()},
    {KERNELS_AVX2, "avx2 scalar", has_avx2()},
    {KERNELS_SCALAR, "scalar", true},
};
#elif defined(__aarch64__) && defined(__ARM_NEON)
const Choice CHOICES[] = {{KERNELS_NEON, "neon scalar", true}, {KERNELS_SCALAR, "scalar", true}};
#else
const Choice CHOICES[] = {{KERNELS_SCALAR, "scalar", true}};
#endif

const Choice &best() {
    const Choice *choice = CHOICES;
    while (!choice->here) choice++; // a processor that has one instruction set also has those after it
    return *choice;
}

} // namespace

const char *instructions() {
    return best().and_worse;
}

const Kernels *find_kernels(const char *name) {
    if (!name) return &best().kernels;
    for (const Choice &choice : CHOICES)
        if (choice.here && std::strcmp(choice.kernels.name, name) == 0) return &choice.kernels;
    return nullptr;
}

} // namespace bpeflow
