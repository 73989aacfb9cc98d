// Address space that becomes memory where it is used.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <sys/mman.h>

namespace bpeflow {

// Zeroed memory at a fixed address. The kernel provides a page when it is first touched.
class Reserved {
  public:
    explicit Reserved(std::size_t size) : size_(size) {
        void *const pages =
            mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (pages == MAP_FAILED) throw std::bad_alloc();
        data_ = static_cast<std::uint8_t *>(pages);
    }

    ~Reserved() { munmap(data_, size_); }
    Reserved(const Reserved &) = delete;
    Reserved &operator=(const Reserved &) = delete;

    // Request huge pages for a part that will be read at random, and filled. They take two megabytes at the first touch,
    // but with small pages nearly every access would miss the TLB.
    void use_huge_pages(std::size_t begin, std::size_t end) const {
#if defined(MADV_HUGEPAGE)
        constexpr std::size_t page = std::size_t{1} << 21;
        const auto address = reinterpret_cast<std::uintptr_t>(data_);
        const std::size_t first = (address + begin + page - 1) / page * page, last = (address + end) / page * page;
        if (first < last) madvise(data_ + (first - address), last - first, MADV_HUGEPAGE);
#endif
    }

    std::uint8_t *data() const { return data_; }
    std::size_t size() const { return size_; } // in bytes

  private:
    std::uint8_t *data_;
    std::size_t size_;
};

} // namespace bpeflow
