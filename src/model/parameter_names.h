#pragma once
// What the names of parameters say about their place in a model.

#include <cstdint>
#include <optional>
#include <string_view>

namespace metaformer {

// 3 for "transformer.blocks.3.mixer.output.weight" and, of recurrent layers, for "lstm.weight_hh_l3"; nothing outside
// of both.
std::optional<std::int64_t> block_number(std::string_view name);

// Whether `name` is `beginning`, or goes on behind it with a dot.
bool is_below(std::string_view name, std::string_view beginning);

// Whether `name` has `part` between two dots, or between a dot and one of its ends: "mixer.projection" is a part of
// "transformer.blocks.3.mixer.projection.weight".
bool has_part(std::string_view name, std::string_view part);

}  // namespace metaformer
