// Checkpoints that are damaged, unfinished or of another version.

#include "base/error.h"
#include "base/random.h"
#include "support/failure.h"
#include "support/workplace.h"

namespace metaformer {

TEST_CASE("a flipped bit or a truncation anywhere in a checkpoint is refused, and an earlier one taken",
          "[checkpoint]") {
  const Workplace place;
  place.train("run", {"train.keep_checkpoints=5"});
  const auto run = RunDirectory::open(place / "run");
  const auto newest = place / "run/checkpoints/step-12";
  const Rng rng(1, RandomPurpose::evaluation);
  std::uint64_t drawn = 0;
  for (const std::string name : {"model.safetensors", "state.safetensors", "tokenizer.json", "meta.json"}) {
    const auto whole = read_text(newest / name);
    for (int i = 0; i < 100; ++i) {
      auto bytes = whole;
      const auto at = rng.below(drawn++, whole.size());
      if (i % 2 == 0) {
        bytes[at] = static_cast<char>(bytes[at] ^ (1 << rng.below(drawn++, 8)));
      } else {
        bytes.resize(at);
      }
      // White space is no content.
      const bool same =
          name == "meta.json" && nlohmann::json::parse(bytes, nullptr, false) == nlohmann::json::parse(whole);
      std::ofstream(newest / name, std::ios::binary) << bytes;
      INFO(name << " at " << at << (i % 2 == 0 ? " flipped" : " cut"));
      if (!same) CHECK_THROWS_AS(load_checkpoint(run, "step-12", WithOptimizer::yes), Error);
      if (i < 4) CHECK(load_newest_checkpoint(run)->progress.step == (same ? 12 : 8));
    }
    std::ofstream(newest / name, std::ios::binary) << whole;
  }
  CHECK(load_newest_checkpoint(run)->progress.step == 12);
}

TEST_CASE("links that a process died before it could swap are repaired", "[checkpoint]") {
  const Workplace place;
  place.train("run", {});
  const auto checkpoints = place / "run/checkpoints";
  REQUIRE(std::filesystem::read_symlink(checkpoints / "best") == "step-12");
  for (const auto* link : {"last", "best"}) {
    std::filesystem::remove(checkpoints / link);
    std::filesystem::create_symlink("step-8", checkpoints / link);
  }
  std::filesystem::create_symlink("step-12", checkpoints / ".last.1.tmp");
  std::filesystem::remove(place / "run/summary.json");
  place.train("run", {}, true);
  CHECK(std::filesystem::read_symlink(checkpoints / "last") == "step-12");
  CHECK(std::filesystem::read_symlink(checkpoints / "best") == "step-12");
  CHECK_FALSE(std::filesystem::is_symlink(checkpoints / ".last.1.tmp"));
}

TEST_CASE("a damaged checkpoint of the step that is saved again is replaced", "[checkpoint]") {
  const Workplace place;
  place.train("whole", {});
  place.train("run", {});
  const auto newest = place / "run/checkpoints/step-12/model.safetensors";
  auto bytes = read_text(newest);
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(newest, std::ios::binary) << bytes;
  std::filesystem::remove(place / "run/summary.json");
  place.train("run", {}, true);
  CHECK(model_bytes(place / "run") == model_bytes(place / "whole"));
  CHECK(load_checkpoint(RunDirectory::open(place / "run"), "last", WithOptimizer::yes).progress.step == 12);
  CHECK(read_text(place / "run/checkpoints/step-12.damaged/model.safetensors") == bytes);
}

TEST_CASE("a checkpoint of a newer program is refused and left alone", "[checkpoint]") {
  const Workplace place;
  place.train("run", {});
  const auto meta_file = place / "run/checkpoints/step-12/meta.json";
  auto meta = nlohmann::ordered_json::parse(read_text(meta_file));
  meta["format_version"] = 99;
  std::ofstream(meta_file) << meta;
  std::filesystem::remove(place / "run/summary.json");
  const auto [code, message] = failure([&] { place.train("run", {"train.steps=20"}, true); });
  CHECK(code == ExitCode::failure);
  CHECK_THAT(message, ContainsSubstring("written by a newer metaformer (format 99"));
  CHECK(nlohmann::ordered_json::parse(read_text(meta_file)) == meta);
  CHECK_FALSE(std::filesystem::exists(place / "run/checkpoints/step-20"));
}

}  // namespace metaformer
