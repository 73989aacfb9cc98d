// Special tokens, with their ids.
#pragma once

#include "bpeflow.h"
#include "delimiters.hpp"
#include "failure.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

namespace bpeflow {

class Specials {
  public:
    Specials(const std::uint8_t *data, const std::uint32_t *lengths, const std::uint32_t *given_ids,
             std::uint32_t count)
        : bytes_(data, data + std::accumulate(lengths, lengths + count, std::size_t{0})),
          ids_(given_ids, given_ids + count), delimiters_({bytes_.data(), lengths, count, count}),
          greatest_id_(count > 0 ? *std::max_element(ids_.begin(), ids_.end()) : 0) {}

    Specials(const Specials &) = delete; // its members refer to each other
    Specials &operator=(const Specials &) = delete;

    Delimiters::Match find(const std::uint8_t *position, const std::uint8_t *end) const {
        return delimiters_.find(position, end);
    }

    std::uint32_t id(const Delimiters::Match &match) const { return ids_[match.index]; }
    std::uint32_t greatest_id() const { return greatest_id_; }

  private:
    const std::vector<std::uint8_t> bytes_;
    const std::vector<std::uint32_t> ids_;
    const Delimiters delimiters_;
    const std::uint32_t greatest_id_;
};

} // namespace bpeflow
