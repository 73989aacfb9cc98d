// The functions of libbpeflow_encode. encoder.hpp encodes, tokens.hpp decodes.

#include "bpeflow.h"
#include "cache.hpp"
#include "encoder.hpp"
#include "failure.hpp"
#include "kernels.hpp"
#include "merge_lines.hpp"
#include "model.hpp"
#include "ranks.hpp"
#include "specials.hpp"
#include "strings.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

struct bpeflow_model {
    bpeflow::Model model;
};

struct bpeflow_specials {
    bpeflow::Specials specials;
};

struct bpeflow_cache {
    bpeflow::Cache shared;
    std::uint64_t own_bytes; // for each encoder
};

struct bpeflow_encoder {
    bpeflow::Encoder encoder;
};

std::uint32_t bpeflow_abi() {
    return BPEFLOW_ABI;
}

int bpeflow_model_new(const bpeflow_vocabulary *vocabulary, bpeflow_model **model) {
    if (!model) return BPEFLOW_BAD_ARGUMENT;
    *model = nullptr;
    if (!vocabulary || !bpeflow::Model::is_valid(*vocabulary)) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] { *model = new bpeflow_model{bpeflow::Model(*vocabulary)}; });
}

void bpeflow_model_free(bpeflow_model *model) {
    delete model;
}

int bpeflow_read_ranks(const std::uint8_t *text, std::uint64_t size, std::uint8_t *data, std::int64_t *offsets,
                       std::int64_t *ranks, std::uint64_t lines) {
    if (!text || !data || !offsets || !ranks) return BPEFLOW_BAD_ARGUMENT;
    bpeflow::RankReader reader(text, size);
    std::uint8_t *end = data;
    offsets[0] = 0;
    for (std::uint64_t line = 0; line < lines; line++) {
        if (!reader.read(end, ranks[line])) return BPEFLOW_DAMAGED;
        offsets[line + 1] = end - data;
    }
    if (!reader.at_end() || lines >= UINT32_MAX) return BPEFLOW_DAMAGED;
    return bpeflow::status_of([&] {
        const bpeflow::Strings tokens(data, offsets, static_cast<std::uint32_t>(lines));
        if (!tokens.are_different()) throw bpeflow::Failure{BPEFLOW_DAMAGED};
    });
}

int bpeflow_recover_merges(const std::uint8_t *data, const std::int64_t *offsets, std::uint32_t tokens,
                           std::uint32_t *merges, std::uint64_t *merge_count) {
    if (!data || !bpeflow::Tokens::are_valid(offsets, tokens) || !merges || !merge_count) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] { *merge_count = bpeflow::recover_merges({data, offsets, tokens}, merges); });
}

int bpeflow_read_merges(const std::uint8_t *text, std::uint64_t size, const std::uint8_t *forms,
                        std::uint64_t forms_size, std::uint32_t count, std::uint32_t *merges, std::uint64_t lines) {
    if (!text || !forms || !merges) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] {
        const std::vector<std::int64_t> offsets = bpeflow::find_lines(forms, forms_size, count);
        const bpeflow::Strings known(forms, offsets.data(), count, 1);
        bpeflow::MergeReader reader(known, text, size);
        for (std::uint64_t line = 0; line < lines; line++, merges += 3)
            if (!reader.read(merges)) throw bpeflow::Failure{BPEFLOW_DAMAGED};
        if (!reader.at_end()) throw bpeflow::Failure{BPEFLOW_DAMAGED};
    });
}

int bpeflow_specials_new(const std::uint8_t *data, const std::uint32_t *lengths, const std::uint32_t *ids,
                         std::uint32_t count, bpeflow_specials **specials) {
    if (!specials) return BPEFLOW_BAD_ARGUMENT;
    *specials = nullptr;
    if (count > 0 && (!data || !lengths || !ids)) return BPEFLOW_BAD_ARGUMENT;
    if (std::any_of(lengths, lengths + count, [](std::uint32_t length) { return length == 0; }))
        return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] { *specials = new bpeflow_specials{{data, lengths, ids, count}}; });
}

void bpeflow_specials_free(bpeflow_specials *specials) {
    delete specials;
}

int bpeflow_cache_new(std::uint64_t bytes, bpeflow_cache **cache) {
    if (!cache) return BPEFLOW_BAD_ARGUMENT;
    *cache = nullptr;
    return bpeflow::status_of([&] { *cache = new bpeflow_cache{bpeflow::Cache(bytes - bytes / 4), bytes / 4}; });
}

void bpeflow_cache_free(bpeflow_cache *cache) {
    delete cache;
}

int bpeflow_encoder_new(const bpeflow_model *model, bpeflow_cache *cache, const char *instructions,
                        bpeflow_encoder **encoder) {
    if (!encoder) return BPEFLOW_BAD_ARGUMENT;
    *encoder = nullptr;
    const bpeflow::Kernels *const kernels = bpeflow::find_kernels(instructions);
    if (!model || !cache || !kernels) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of(
        [&] { *encoder = new bpeflow_encoder{{model->model, *kernels, cache->shared, cache->own_bytes}}; });
}

int bpeflow_encoder_encode(bpeflow_encoder *encoder, bpeflow_encoding *encoding, const std::uint8_t *data,
                           const std::uint64_t *ends, std::uint64_t pieces, std::uint64_t *id_ends) {
    if (!encoder || !encoding || (!ends && pieces > 0)) return BPEFLOW_BAD_ARGUMENT;
    const bpeflow::Specials *specials = encoding->specials ? &encoding->specials->specials : nullptr;
    return bpeflow::status_of([&] { encoder->encoder.encode(*encoding, specials, data, ends, pieces, id_ends); });
}

int bpeflow_encoder_encode_texts(bpeflow_encoder *encoder, bpeflow_encoding *encoding, const std::uint8_t *const *texts,
                                 const std::uint64_t *sizes, std::uint64_t count, std::uint64_t *id_ends) {
    if (!encoder || !encoding || !id_ends || ((!texts || !sizes) && count > 0)) return BPEFLOW_BAD_ARGUMENT;
    const bpeflow::Specials *specials = encoding->specials ? &encoding->specials->specials : nullptr;
    return bpeflow::status_of(
        [&] { encoder->encoder.encode_texts(*encoding, specials, texts, sizes, count, id_ends); });
}

std::uint64_t bpeflow_find_texts(void *list, std::uint64_t count, bpeflow_item_of item_of, bpeflow_utf8_of utf8_of,
                                 const std::uint8_t **texts, std::uint64_t *sizes) {
    if (!list || !item_of || !utf8_of || !texts || !sizes) return 0;
    for (std::uint64_t i = 0; i < count; i++) {
        void *const item = item_of(list, static_cast<std::ptrdiff_t>(i));
        std::ptrdiff_t size = 0;
        texts[i] = item ? reinterpret_cast<const std::uint8_t *>(utf8_of(item, &size)) : nullptr;
        if (!texts[i]) return i;
        sizes[i] = static_cast<std::uint64_t>(size);
    }
    return count;
}

std::int32_t bpeflow_encode_prepared(bpeflow_prepared *prepared, const std::uint8_t *text, std::int32_t length) {
    if (!prepared || length < 0) return -BPEFLOW_BAD_ARGUMENT;
    const auto end = static_cast<std::uint64_t>(length);
    const int status = bpeflow_encoder_encode(prepared->encoder, &prepared->encoding, text, &end, 1, nullptr);
    return status == BPEFLOW_OK ? static_cast<std::int32_t>(prepared->encoding.written) : -status;
}

void bpeflow_encoder_free(bpeflow_encoder *encoder) {
    delete encoder;
}

int bpeflow_model_decode(const bpeflow_model *model, const void *ids, std::uint32_t id_size, std::uint64_t count,
                         std::uint8_t *data, std::uint64_t *size) {
    if (!model || !size || (!ids && count > 0)) return BPEFLOW_BAD_ARGUMENT;
    const bpeflow::Tokens &tokens = model->model.tokens;
    std::uint64_t &length = *size;
    const auto decode = [&](const auto *given) {
        return data ? tokens.decode(given, count, data, length) : tokens.measure(given, count, length);
    };
    if (id_size == 2) return decode(static_cast<const std::uint16_t *>(ids));
    if (id_size == 4) return decode(static_cast<const std::uint32_t *>(ids));
    return BPEFLOW_BAD_ARGUMENT;
}
