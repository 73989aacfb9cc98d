// Memory that grows.
#pragma once

#include "huge_pages.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <sys/mman.h>

namespace bpeflow {

// Zeroed memory in pages straight from the kernel: it clears them when they are first touched, and gets them back at
// once. Growing keeps the content, but may move it to another address; Linux moves it without copying.
//
// Huge pages are requested before any page is touched, as random accesses would miss the TLB nearly every time.
class Pages {
  public:
    explicit Pages(std::size_t size) : data_(map(rounded(size))), size_(rounded(size)) {}

    ~Pages() { munmap(data_, size_); }
    Pages(const Pages &) = delete;
    Pages &operator=(const Pages &) = delete;

    void grow(std::size_t size) {
        size = rounded(size);
        std::uint8_t *const larger = map(size);
#if defined(__linux__)
        if (mremap(data_, size_, size_, MREMAP_MAYMOVE | MREMAP_FIXED, larger) == MAP_FAILED) {
            munmap(larger, size);
            throw std::bad_alloc();
        }
#else
        std::memcpy(larger, data_, size_);
        munmap(data_, size_);
#endif
        data_ = larger;
        size_ = size;
    }

    // Return a part, of whole pages, to the kernel. The content is lost.
    void discard(std::size_t begin, std::size_t end) const { madvise(data_ + begin, end - begin, MADV_DONTNEED); }

#if defined(__linux__)
    static constexpr bool COPIES = false;
#else
    static constexpr bool COPIES = true; // while it grows, the memory is there twice
#endif

    std::uint8_t *data() const { return data_; }
    std::size_t size() const { return size_; } // in bytes

    static constexpr std::size_t large_page = std::size_t{1} << 21;

  private:
    static constexpr std::size_t small_page = std::size_t{1} << 16; // the largest of the supported systems

    // Where memory that moves ends within a huge page, small pages would have to fill the rest of it.
    static std::size_t rounded(std::size_t size) {
        const std::size_t page = size < large_page ? small_page : large_page;
        return (size + page - 1) / page * page;
    }

    // Map at an address that is a multiple of a huge page, if the memory fills one.
    static std::uint8_t *map(std::size_t size) {
        const std::size_t spare = size < large_page ? 0 : large_page;
        void *const pages = mmap(nullptr, size + spare, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (pages == MAP_FAILED) throw std::bad_alloc();
        auto *data = static_cast<std::uint8_t *>(pages);
        if (!spare) return data;
        const std::size_t before = (large_page - reinterpret_cast<std::uintptr_t>(data) % large_page) % large_page;
        if (before > 0) munmap(data, before);
        data += before;
        munmap(data + size, spare - before);
        request_huge_pages(data, size);
        return data;
    }

    std::uint8_t *data_;
    std::size_t size_;
};

} // namespace bpeflow
