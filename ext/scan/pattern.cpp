// Patterns, and the functions of the C interface that create them.

#include "pattern.hpp"
#include "automaton.hpp"
#include "bpeflow.h"
#include "failure.hpp"
#include "join.hpp"
#include "kernels.hpp"
#include "named_patterns.hpp"
#include "pretoken_batch.hpp"
#include "scan.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace bpeflow {

Pattern::Pattern(std::uint32_t number) : name(number) {
    if (number >= sizeof named::PATTERNS / sizeof *named::PATTERNS) throw Failure{BPEFLOW_BAD_ARGUMENT};
    const named::Table &table = named::PATTERNS[number];
    CharacterClasses classes(table.class_of_bits);
    for (const named::Exception *each = table.exceptions; each->number != 255; each++)
        classes[each->code_point] = each->number;
    steps.emplace_back(table.step, classes);
}

Pattern::Pattern(const bpeflow_step *given, std::uint32_t count, std::uint32_t policy) : unmatched(policy) {
    if (!given || count == 0 || policy > BPEFLOW_UNMATCHED_ERROR) throw Failure{BPEFLOW_BAD_ARGUMENT};
    steps.reserve(count);
    for (std::uint32_t i = 0; i < count; i++) steps.emplace_back(given[i]);
    std::vector<Automaton> fewer;
    for (const Automaton &step : steps) {
        std::optional<Automaton> both;
        // A joined step does not say what is unmatched in the pieces of the first one, or leave it out.
        const bool drops = policy == BPEFLOW_DROP && !fewer.empty() && (fewer.back().has_gaps() || step.has_gaps());
        if (!fewer.empty() && !drops) both = Join::of(fewer.back(), step);
        if (both)
            fewer.back() = *std::move(both);
        else
            fewer.push_back(step);
    }
    if (fewer.size() < steps.size()) joined = std::move(fewer);
}

} // namespace bpeflow

int bpeflow_pattern_named(std::uint32_t number, bpeflow_pattern **pattern) {
    if (!pattern) return BPEFLOW_BAD_ARGUMENT;
    *pattern = nullptr;
    return bpeflow::status_of([&] { *pattern = new bpeflow_pattern{bpeflow::Pattern(number)}; });
}

int bpeflow_pattern_new(const bpeflow_step *steps, std::uint32_t count, std::uint32_t unmatched,
                        bpeflow_pattern **pattern) {
    if (!pattern) return BPEFLOW_BAD_ARGUMENT;
    *pattern = nullptr;
    return bpeflow::status_of([&] { *pattern = new bpeflow_pattern{bpeflow::Pattern(steps, count, unmatched)}; });
}

void bpeflow_pattern_free(bpeflow_pattern *pattern) {
    delete pattern;
}

int bpeflow_pattern_split(const bpeflow_pattern *pattern, const std::uint8_t *text, std::uint64_t size,
                          std::uint64_t *spans, std::uint64_t *count) {
    if (!pattern || !text || !spans || !count) return BPEFLOW_BAD_ARGUMENT;
    return bpeflow::status_of([&] {
        *count = 0;
        const auto add = [&](const bpeflow::PretokenBatch &batch) {
            const auto start = static_cast<std::uint64_t>(batch.text - text);
            for (std::size_t i = 0; i < batch.count; i++, ++*count) {
                spans[2 * *count] = start + batch.starts[i];
                spans[2 * *count + 1] = start + batch.ends[i];
            }
        };
        bpeflow::scan(pattern->pattern, *bpeflow::find_kernels(nullptr), text, size, add);
    });
}
