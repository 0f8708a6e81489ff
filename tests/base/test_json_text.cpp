// JSON from untrusted files.

#include <fmt/format.h>

#include "base/json.h"
#include "base/random.h"
#include "support/catch.h"
#include "support/failure.h"

namespace metaformer {

namespace {

std::string nested(std::size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); }

// A random value of up to `depth` nested lists and objects.
std::string random_json(const Rng& rng, std::uint64_t& drawn, int depth) {
  const auto below = [&](std::uint64_t bound) { return rng.below(drawn++, bound); };
  const std::vector<std::string> plain = {"null", "true", "false", "0",        "-17",         "18446744073709551615",
                                          "1.5",  "1e-3", "\"\"",  "\"a\\n\"", "\"\\u00e9\"", "\"自\""};
  const auto kind = below(depth > 0 ? 4 : 2);
  if (kind < 2) return plain[below(plain.size())];
  std::string text;
  for (auto count = below(5); count > 0; --count) {
    if (!text.empty()) text += ", ";
    if (kind == 3) text += fmt::format("\"k{}\": ", below(4));  // some keys twice
    text += random_json(rng, drawn, depth - 1);
  }
  return kind == 2 ? "[" + text + "]" : "{" + text + "}";
}

// Many values in one list: parsing would take minutes if it searched the whole list for each value.
std::string many_objects(int count) {
  std::string text = "[";
  for (int i = 0; i < count; ++i) text += i % 2 == 0 ? "{}," : "{\"a\": [[1], {}]},";
  return text + "{}]";
}

}  // namespace

TEST_CASE("parsed JSON equals that of the library", "[json]") {
  const Rng rng(7, RandomPurpose::sampling);
  std::uint64_t drawn = 0;
  for (int round = 0; round < 500; ++round) {
    auto text = random_json(rng, drawn, 5);
    if (round % 3 == 0 && !text.empty()) text.erase(rng.below(drawn++, text.size()), 1);  // often invalid JSON
    CAPTURE(text);
    const auto plain = nlohmann::json::parse(text, nullptr, false);
    const auto ordered = nlohmann::ordered_json::parse(text, nullptr, false);
    CHECK(parse_json(text).is_discarded() == plain.is_discarded());
    CHECK(parse_json<nlohmann::ordered_json>(text).is_discarded() == ordered.is_discarded());
    if (plain.is_discarded()) continue;
    CHECK(parse_json(text) == plain);
    CHECK(parse_json<nlohmann::ordered_json>(text).dump() == ordered.dump());
  }
  for (const std::string text : {"", " ", "[1,]", "{\"a\"}", "[1] 2", "1e400", "nan", "\"\xff\"", "\"\xc3\"", "[\x01]"})
    CHECK(parse_json(text).is_discarded());
  CHECK(parse_json(" 3 ") == 3);
  CHECK(parse_json("\xEF\xBB\xBF[3]")[0] == 3);
}

TEST_CASE("JSON with too deep nesting or too many comparisons of keys is refused", "[json]") {
  CHECK_FALSE(parse_json(nested(deepest_json)).is_discarded());
  for (const auto& text : {nested(deepest_json + 1), std::string(1 << 20, '['), std::string(1 << 20, '{')})
    CHECK(parse_json(text).is_discarded());
  const std::string three = R"({"a": 1, "b": 2, "c": 3})";  // 0 + 1 + 2 comparisons
  CHECK_FALSE(parse_json<nlohmann::ordered_json>(three, 3).is_discarded());
  CHECK(parse_json<nlohmann::ordered_json>(three, 2).is_discarded());
  CHECK_FALSE(parse_json(three, 0).is_discarded());  // a map needs no comparisons
}

TEST_CASE("the time to parse JSON is proportional to its length with any number of objects, and a signal interrupts it",
          "[json]") {
  const auto list = parse_json(many_objects(600'000));
  CHECK(list.size() == 600'001);
  CHECK(list[1]["a"][0][0] == 1);
  CHECK(parse_json<nlohmann::ordered_json>(many_objects(600'000)).size() == 600'001);
  std::string names = "{";
  for (int i = 0; i < 300'000; ++i) names += fmt::format("\"n{}\": {{\"shape\": [{}]}},", i, i);
  names.back() = '}';
  CHECK(parse_json(names).size() == 300'000);
  CHECK(parse_json<nlohmann::ordered_json>(names).is_discarded());  // compares each name with all earlier ones
  CHECK(interruption([] { parse_json(many_objects(200'000)); }) == SIGTERM);
}

}  // namespace metaformer
