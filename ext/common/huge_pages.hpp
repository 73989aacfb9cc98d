// Huge pages.
#pragma once

#include <cstddef>
#include <cstdint>
#include <sys/mman.h>

namespace bpeflow {

// Request huge pages for memory that has not been touched, where it fills them. They take two megabytes at the first
// touch, but with small pages nearly every random access would miss the TLB, and the kernel has 512 times as many to
// provide.
inline void request_huge_pages(void *begin, std::size_t size) {
#if defined(MADV_HUGEPAGE)
    constexpr std::uintptr_t page = std::uintptr_t{1} << 21;
    const auto address = reinterpret_cast<std::uintptr_t>(begin);
    const std::uintptr_t first = (address + page - 1) / page * page, last = (address + size) / page * page;
    if (first < last) madvise(static_cast<std::uint8_t *>(begin) + (first - address), last - first, MADV_HUGEPAGE);
#else
    (void)begin, (void)size;
#endif
}

} // namespace bpeflow
