// The table that the backend auto goes by: written and read back, its nearest cells, and files that cannot be used.

#include <functional>
#include <nlohmann/json.hpp>

#include "attention/choice_table.h"
#include "support/catch.h"
#include "support/failure.h"
#include "support/own_cache.h"

namespace metaformer {

namespace {

const std::string device = "NVIDIA H200 (2nd)";

ChoiceTable small_table() {
  return {.device = device,
          .date = "2026-11-23",
          .cells = {{{ChoiceType::bf16, 64, 32, false, false}, 0.5},
                    {{ChoiceType::bf16, 64, 128, false, false}, 0.6},
                    {{ChoiceType::bf16, 4096, 32, false, false}, 1.5},
                    {{ChoiceType::bf16, 4096, 128, false, false}, 1.6},
                    {{ChoiceType::bf16, 64, 32, true, true}, 0.25},
                    {{ChoiceType::tf32, 64, 32, false, false}, 2.5}}};
}

std::filesystem::path write(const OwnCache& cache, const std::string& content) {
  const auto path = choice_table_path(device).value();
  cache.folder().write(std::filesystem::relative(path, cache.folder().path()).string(), content);
  return path;
}

std::string changed(const std::function<void(nlohmann::ordered_json&)>& change) {
  auto json = nlohmann::ordered_json::parse(to_json_text(small_table()));
  change(json);
  return json.dump();
}

std::string with_cell(const char* key, const nlohmann::ordered_json& value) {
  return changed([&](auto& json) { json["cells"][2][key] = value; });
}

struct Broken {
  std::string content, reason;
};

std::vector<Broken> broken_tables() {
  return {{"", "not a table of kernel choices"},
          {to_json_text(small_table()).substr(0, 300), "not a table of kernel choices"},
          {"[]", "not a table of kernel choices"},
          {"{\"format\": 1}", "not a table of kernel choices"},
          {changed([](auto& json) { json["version"] = 2; }), "of version 2, not 1"},
          {changed([](auto& json) { json.erase("version"); }), "of version null, not 1"},
          {changed([](auto& json) { json["cells"] = nlohmann::ordered_json::array(); }), "no cells"},
          {changed([](auto& json) { json.erase("cells"); }), "key 'cells' not found"},
          {changed([](auto& json) { json["date"] = "to\nday"; }), "date"},
          {changed([](auto& json) { json["cells"][2].erase("type"); }), "key 'type' not found"},
          {with_cell("type", "fp8"), "fp8"},
          {with_cell("mask", "all"), "all"},
          {with_cell("score", 3), "type must be string"},
          {with_cell("context", 0), "(0)"},
          {with_cell("head_width", 1.5), "(1.5)"},
          {with_cell("fused_to_composed", 0), "(0)"},
          {with_cell("fused_to_composed", nullptr), "type must be number"}};
}

}  // namespace

TEST_CASE("the nearest cell decides, by octaves of context and head width", "[choice_table]") {
  const auto table = small_table();
  const auto ratio = [&](std::int64_t context, std::int64_t width) {
    return table.ratio({ChoiceType::bf16, context, width, false, false});
  };
  CHECK(ratio(64, 32) == 0.5);
  CHECK(ratio(4096, 128) == 1.6);
  CHECK(ratio(8, 8) == 0.5);
  CHECK(ratio(1 << 20, 8) == 1.5);
  CHECK(ratio(500, 32) == 0.5);  // 2.97 octaves above 64, 3.03 below 4096
  CHECK(ratio(525, 32) == 1.5);  // 3.04 and 2.96
  CHECK(ratio(64, 63) == 0.5);   // 0.98 octaves above 32, 1.02 below 128
  CHECK(ratio(64, 66) == 0.6);   // 1.04 and 0.96, though it is nearer to 32 by difference
  CHECK(ratio(512, 64) == 0.5);  // as near to all four: the first
}

TEST_CASE("a cell of another type, score or mask decides nothing", "[choice_table]") {
  const auto table = small_table();
  CHECK(table.ratio({ChoiceType::tf32, 4096, 128, false, false}) == 2.5);
  CHECK(table.ratio({ChoiceType::bf16, 4096, 128, true, true}) == 0.25);
  CHECK_FALSE(table.ratio({ChoiceType::fp16, 64, 32, false, false}));
  CHECK_FALSE(table.ratio({ChoiceType::fp32, 64, 32, false, false}));
  CHECK_FALSE(table.ratio({ChoiceType::bf16, 64, 32, true, false}));
  CHECK_FALSE(table.ratio({ChoiceType::bf16, 64, 32, false, true}));
}

TEST_CASE("a table is found by its device's name, as it was written", "[choice_table]") {
  const OwnCache cache;
  CHECK_FALSE(find_choice_table(device).table);
  CHECK(find_choice_table(device).problem.empty());
  const auto path = write(cache, to_json_text(small_table()));
  CHECK(path.filename() == "NVIDIA_H200__2nd_.json");
  const auto [table, problem] = find_choice_table(device);
  CHECK(problem.empty());
  REQUIRE(table);
  CHECK(table->date == "2026-11-23");
  CHECK(to_json_text(*table) == to_json_text(small_table()));
  CHECK_FALSE(find_choice_table("NVIDIA H100").table);
  CHECK(find_choice_table("NVIDIA H100").problem.empty());
}

TEST_CASE("the table of another device is not used, and that is said", "[choice_table]") {
  const OwnCache cache;
  auto table = small_table();
  table.device = "NVIDIA A100";
  const auto path = write(cache, to_json_text(table));
  const auto found = find_choice_table(device);
  CHECK_FALSE(found.table);
  CHECK(found.problem == path.string() + ": measured on NVIDIA A100, not on " + device);
}

TEST_CASE("a table that is broken or of another version is refused, with the reason", "[choice_table]") {
  const OwnCache cache;
  for (const auto& [content, reason] : broken_tables()) {
    CAPTURE(content);
    const auto path = write(cache, content);
    const auto [code, message] = failure([&, path] { read_choice_table(path); });
    CHECK(code == ExitCode::usage);
    CHECK_THAT(message, ContainsSubstring(path.string()) && ContainsSubstring(reason) &&
                            ContainsSubstring("bench attention --write-choices"));
    CHECK(message.find('\n') == std::string::npos);
    const auto found = find_choice_table(device);
    CHECK_FALSE(found.table);
    CHECK(found.problem == message);
  }
}

}  // namespace metaformer
