// Encoding: text → special tokens and the text between them → pre-tokens → ids.
#pragma once

#include "bpeflow.h"
#include "failure.hpp"
#include "id_writer.hpp"
#include "kernels.hpp"
#include "lookup.hpp"
#include "model.hpp"
#include "pattern.hpp"
#include "pieces.hpp"
#include "scan.hpp"
#include "short_texts.hpp"
#include "specials.hpp"
#include "two_levels.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace bpeflow {

class Encoder {
  public:
    using Bytes = const std::uint8_t *;

    // Share a cache, and use up to `own_bytes` for a private one.
    Encoder(const Model &model, const Kernels &kernels, Cache &shared, std::uint64_t own_bytes)
        : model_(model), kernels_(kernels), lookup_(model, kernels, shared, own_bytes), pieces_(model.pairs),
          levels_(model.second_level ? new TwoLevels(*model.second_level, pieces_, lookup_) : nullptr) {}

    // Encode `pieces` texts, where piece i ends at data + ends[i]. All ids are written one after another.
    void encode(bpeflow_encoding &encoding, const Specials *specials, Bytes data, const std::uint64_t *ends,
                std::uint64_t pieces, std::uint64_t *id_ends) {
        check(encoding, specials, data, ends, pieces);
        encoding_ = &encoding;
        specials_ = specials;
        encoding.written = 0;
        lookup_.set_readable(pieces > 0 ? data + ends[pieces - 1] : data);
        short_texts_.begin(id_ends);
        together_ = pieces > 1 && id_ends && !levels_;
        may_cut_ = encoding.pattern && encoding.pattern->pattern.name == Pattern::COMPILED && !levels_ &&
                   model_.whole_tokens.empty();
        Bytes start = data;
        for (std::uint64_t i = 0; i < pieces; i++) {
            const Bytes end = data + ends[i];
            encode_piece(start, end);
            if (together_) {
                if (short_texts_.end_text(encoding.written)) look_up();
            } else if (id_ends) {
                id_ends[i] = encoding.written;
            }
            start = end;
        }
        look_up();
        lookup_.trim();
        if (levels_) levels_->trim();
    }

    // Encode texts that are anywhere in memory.
    void encode_texts(bpeflow_encoding &encoding, const Specials *specials, const Bytes *texts,
                      const std::uint64_t *sizes, std::uint64_t count, std::uint64_t *id_ends) {
        packed_.pack(texts, sizes, count);
        encode(encoding, specials, packed_.data(), packed_.ends(), count, id_ends);
        packed_.trim();
    }

  private:
    void check(const bpeflow_encoding &encoding, const Specials *specials, Bytes data, const std::uint64_t *ends,
               std::uint64_t pieces) const {
        const std::uint64_t ids = encoding.id_size == 2 ? std::uint64_t{1} << 16 : std::uint64_t{1} << 32;
        std::uint64_t end = 0;
        bool sound = (encoding.id_size == 2 || encoding.id_size == 4) && model_.tokens.count() <= ids &&
                     (!specials || specials->greatest_id() < ids);
        for (std::uint64_t i = 0; i < pieces; end = ends[i++]) sound &= ends[i] >= end;
        if (!sound || (!data && end > 0)) throw Failure{BPEFLOW_BAD_ARGUMENT};
    }

    void encode_piece(Bytes start, Bytes end) {
        if (encoding_->pattern && !kernels_.is_utf8(start, end)) throw Failure{BPEFLOW_NOT_UTF8};
        if (!specials_) {
            encode_ordinary(start, end);
            return;
        }
        while (start < end) {
            const Delimiters::Match match = specials_->find(start, end);
            encode_ordinary(start, match.start);
            if (match.start < match.end) put(specials_->id(match));
            start = match.end;
        }
    }

    void encode_ordinary(Bytes start, Bytes end) {
        if (start == end) return;
        const auto length = static_cast<std::size_t>(end - start);
        if (encoding_->pattern) {
            scan(encoding_->pattern->pattern, kernels_, start, length,
                 [this](const PretokenBatch &tokens) { add(tokens); });
        } else {
            if (length > UINT32_MAX) throw Failure{BPEFLOW_TOO_LARGE};
            const std::uint32_t first = 0, last = static_cast<std::uint32_t>(length);
            add({start, &first, &last, 1});
        }
    }

    void add(const PretokenBatch &tokens) {
        if (may_cut_ && Pieces::are_better(tokens)) {
            look_up();
            to_ids([&](auto &ids) { add_pieces(tokens, ids); });
            return;
        }
        if (together_ && short_texts_.take(tokens, [this] { look_up(); })) return;
        to_ids([&](auto &ids) { levels_ ? levels_->add(tokens, ids) : lookup_.add(tokens, ids); });
    }

    template <typename Ids> void add_pieces(const PretokenBatch &tokens, Ids &ids) {
        const auto look_up_pieces = [&](const PretokenBatch &pieces) { lookup_.add(pieces, ids); };
        pieces_.clear();
        for (std::size_t i = 0; i < tokens.count; i++)
            pieces_.add(tokens.text, tokens.starts[i], tokens.ends[i], look_up_pieces);
        pieces_.finish(tokens.text, look_up_pieces);
    }

    // Write the ids of the pre-tokens of short texts.
    void look_up() {
        if (short_texts_.empty()) return;
        to_ids([this](auto &ids) { lookup_.add(short_texts_.tokens(), ids, short_texts_.borders()); });
        short_texts_.clear();
    }

    void put(std::uint32_t id) {
        look_up();
        to_ids([id](auto &ids) { ids.put(&id, 1); });
    }

    // Call `work` with the writer of the ids.
    template <typename Work> void to_ids(const Work &work) {
        const auto with = [&](auto ids) {
            work(ids);
            encoding_->written = ids.written();
        };
        if (encoding_->id_size == 2)
            with(IdWriter<std::uint16_t>(encoding_->ids, encoding_->written, encoding_->capacity));
        else
            with(IdWriter<std::uint32_t>(encoding_->ids, encoding_->written, encoding_->capacity));
    }

    const Model &model_;
    const Kernels &kernels_;
    Lookup lookup_;
    Pieces pieces_;
    const std::unique_ptr<TwoLevels> levels_; // null if the vocabulary has only one
    PackedTexts packed_;
    ShortTexts short_texts_;
    // Of the current call:
    bool together_ = false; // whether pre-tokens of several texts are looked up together
    // Whether long pre-tokens may be cut into pieces. A piece that is a whole token need not become that token. With a named
    // pattern, pre-tokens of languages without spaces are long. Cut, they take a tenth less if new, but a tenth more if known.
    bool may_cut_ = false;
    bpeflow_encoding *encoding_ = nullptr;
    const Specials *specials_ = nullptr;
};

} // namespace bpeflow
