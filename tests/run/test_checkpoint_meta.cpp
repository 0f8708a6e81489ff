// meta.json comes back as it was written, and nothing that no run can have written is believed.

#include <map>
#include <nlohmann/json.hpp>

#include "base/digest.h"
#include "run/checkpoint_meta.h"
#include "support/catch.h"
#include "support/failure.h"

namespace metaformer {

namespace {

using Json = nlohmann::ordered_json;

const Json sample = Json::parse(R"({"format_version": 2, "step": 40, "best": {"step": 30, "loss": 2.25, "error": 0.125},
  "loss_sum": 4.5, "loss_count": 2, "last_train_loss": 0.1, "train_seconds": 1.5, "evaluated_step": 40,
  "validation": {"loss": 2.3, "targets": 100}, "evaluations_since_best": 1, "rollbacks": 2, "rollback_step": 20,
  "scheduled": false, "spikes": {"seen": 7, "mean": 0.25, "variance": 0.5, "count": 3}, "clipped_steps": 9,
  "clipped_count": 1, "skipped_steps": 4, "uniform_entropy": 0.998,
  "attention_collapse": {"step": 30, "kind": "one_token", "entropy": 0.01}, "startup_seconds": 0.5, "wall_seconds": 8.5,
  "evaluation_seconds": 2.5, "checkpoint_seconds": 0.25,
  "files": {"model.safetensors": "abc", "tokenizer.json": "def"}})");

// As a hostile writer would: the digest is right.
std::string with(const std::string& key, const Json& value) {
  auto json = sample;
  json[key] = value;
  json["sha256"] = sha256(json.dump());
  return json.dump();
}

std::string refusal(const std::string& text) {
  return message_of(ExitCode::failure, [&] { read_checkpoint_meta(text, "a/meta.json"); });
}

}  // namespace

TEST_CASE("progress and digests come back as they were written", "[meta]") {
  const auto text = with("step", 40);
  const auto meta = read_checkpoint_meta(text, "t");
  CHECK(Json::parse(to_text(meta)) == Json::parse(text));
  CHECK(meta.progress.best->error == 0.125);
  CHECK(meta.progress.spikes.variance == 0.5);
  CHECK_FALSE(meta.progress.scheduled);
  CHECK(meta.progress.collapse->kind == CollapseKind::one_token);
  CHECK(meta.digests == std::map<std::string, std::string>{{"model.safetensors", "abc"}, {"tokenizer.json", "def"}});
}

TEST_CASE("metrics of any number of classes leave meta.json small", "[meta]") {
  const auto small = read_checkpoint_meta(with("step", 40), "t");
  auto large = small;
  for (int i = 0; i < 300; ++i) large.progress.validation["confusion"][std::to_string(i)] = {{"a", i}};
  CHECK(to_text(large) == to_text(small));
  CHECK(without_tables(nullptr).is_null());
  Json table;  // many small objects are read
  for (int i = 0; i < 40'000; ++i) table[std::to_string(i / 200)][std::to_string(i % 200)] = 0;
  CHECK(read_checkpoint_meta(with("confusion", table), "t").progress.step == 40);
}

TEST_CASE("what no run can have written is damage, with the key", "[meta]") {
  const std::map<std::string, std::string> wrong = {
      {"step", R"(-1, 1.5, "40", 18446744073709551615)"},
      {"format_version", "null, 1"},
      {"loss_sum", R"("4")"},
      {"loss_count", "-2"},
      {"evaluated_step", "41"},
      {"best", R"(null, [1, 2], {"step": 30, "loss": 1}, {"step": 41, "loss": 1, "error": 1})"},
      {"validation", R"(null, {"accuracy": 1})"},
      {"rollbacks", "1001"},
      {"rollback_step", "-1, null"},
      {"scheduled", "1, null"},
      {"clipped_steps", "null"},
      {"spikes", R"(7, null, {"seen": 1})"},
      {"uniform_entropy", R"("high")"},
      {"attention_collapse", R"(7, {"step": 1, "kind": "none", "entropy": 0.5},
                                {"step": 18446744073709551615, "kind": "uniform", "entropy": 1})"},
      {"files", R"({"model.safetensors": 1})"}};
  for (const auto& [key, values] : wrong)
    for (const auto& value : Json::parse("[" + values + "]")) {
      INFO(key << " = " << value);
      CHECK_THAT(refusal(with(key, value)), ContainsSubstring("a/meta.json: damaged"));
    }
}

TEST_CASE("hostile nesting and endless keys are refused, and a newer format is named", "[meta]") {
  CHECK_THAT(refusal(with("format_version", 3)), ContainsSubstring("a/meta.json: ") && ContainsSubstring("format 3"));
  std::string keys = "{";
  for (int i = 0; i < 300'000; ++i) keys += fmt::format("\"k{}\":0,", i);
  keys.back() = '}';
  for (const auto& text :
       {std::string(1'000'000, '['), keys, "{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}"})
    CHECK_THAT(refusal(text), ContainsSubstring("not a JSON object"));
}

}  // namespace metaformer
