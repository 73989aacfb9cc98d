// Address space that becomes memory where it is used.
#pragma once

#include "huge_pages.hpp"

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

    // Request huge pages for a part that will be read at random, and filled.
    void use_huge_pages(std::size_t begin, std::size_t end) const { request_huge_pages(data_ + begin, end - begin); }

    std::uint8_t *data() const { return data_; }
    std::size_t size() const { return size_; } // in bytes

  private:
    std::uint8_t *data_;
    std::size_t size_;
};

} // namespace bpeflow
