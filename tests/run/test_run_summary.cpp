// summary.json is read back as written.

#include <regex>

#include "run/run_summary.h"
#include "support/catch.h"
#include "support/temporary_folder.h"

namespace metaformer::test_run_summary {

namespace {

using Json = nlohmann::ordered_json;

const std::string first =
    R"({"steps":40,"train_loss":0.1,"val_loss":2.25,"best_val_loss":2.125,"best_val_error":0.25,"best_step":30,)"
    R"("validation":{"loss":2.25,"texts":7},"test":null,"stopped_early":true,"parameters":100,"mixer_parameters":30,)";

}  // namespace

TEST_CASE("a summary is read back as written, with its keys in order", "[summary]") {
  const TemporaryFolder folder;
  const auto run = RunDirectory::create(folder / "run");
  CHECK_FALSE(read_summary(run));
  const bool stepwise = GENERATE(false, true);
  auto text =
      first +
      (stepwise
           ? R"("ms_per_step":2.5,"tokens_per_second":0.75,"operations_per_token":9.5,"state_bytes":512,"bytes_per_token":1.25,"peak_memory_bytes":1024,"rollbacks":1,)"
             R"("spikes":2,"skipped_steps":8,"seed":3,"tokens":4,"epochs":0.5,)"
             R"("clipped_fraction":0.25,"evaluated_tokens":5,"validation_tokens":6,)"
             R"("train_seconds":1.5,"evaluation_seconds":6.5,"checkpoint_seconds":0.75,)"
             R"("startup_seconds":0.5,"wall_seconds":7.5,)"
           : R"("peak_memory_bytes":1024,"train_seconds":1.5,)");
  const bool more = GENERATE(false, true);
  if (more) {
    text = std::regex_replace(
        text, std::regex(R"("test":null)"),
        R"("test":{"loss":3.5,"perplexity":null,"texts":5,"classes":{"good":{"texts":3,"predicted":2,"correct":2,)"
        R"("precision":1.0,"recall":0.6666666666666666,"f1":0.8},"never":{"texts":0,"predicted":0,"correct":0}},"written":{"beam":4,"bleu":20.0,)"
        R"("baselines":{"source":{"bleu":1.5}},"signatures":{"bleu":"nrefs:1"}}})");
    text = std::regex_replace(text, std::regex(R"("epochs":0.5)"), R"("epochs":null)");
    text = std::regex_replace(text, std::regex(R"("state_bytes":512)"), R"("state_bytes":null)");
    text = std::regex_replace(text, std::regex(R"("stopped_early")"), R"("temperature":1.25,"stopped_early")");
    text += R"("attention_collapse":{"step":20,"kind":"uniform","entropy":0.99},)";
  }
  text += more ? R"("run":"/a/run","baselines":{"majority":{"validation":0.5}}})" : R"("run":"/a/run"})";
  folder.write("run/summary.json", text);
  const auto summary = read_summary(run);
  REQUIRE(summary);
  CHECK(to_json(*summary).dump() == text);
  CHECK(summary->best_val_error == 0.25);
  CHECK(summary->stepwise.has_value() == stepwise);
  if (stepwise) CHECK(summary->stepwise->epochs == (more ? std::nullopt : std::optional(0.5)));
  write_summary(run, *summary);
  CHECK(Json::parse(read_text(run.summary_file())).dump() == text);
}

TEST_CASE("the existing keys of an incomplete summary are read", "[summary]") {
  const TemporaryFolder folder;
  const auto run = RunDirectory::create(folder / "run");
  folder.write("run/summary.json", R"({"steps": 12, "val_loss": 2.5, "validation": {"loss": 2.5}, "unknown": []})");
  const auto summary = read_summary(run);
  REQUIRE(summary);
  CHECK(summary->steps == 12);
  CHECK(summary->val_loss == 2.5);
  CHECK_FALSE(summary->stepwise);
  for (const std::string tables : {R"("classes": [1])", R"("classes": {"a": 1})", R"("written": {"signatures": []})"}) {
    folder.write("run/summary.json", R"({"steps": 12, "validation": {"loss": 2.5, )" + tables + "}}");
    CHECK(read_summary(run)->steps == 12);
  }
  folder.write("run/summary.json", "[1]");
  CHECK_FALSE(read_summary(run));
}

}  // namespace metaformer::test_run_summary
