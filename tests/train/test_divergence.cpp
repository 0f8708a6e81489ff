// What is not finite is named, never saved, and mended where the config says so.

#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/error.h"
#include "base/random.h"
#include "support/failure.h"
#include "support/workplace.h"
#include "train/spike_detector.h"

namespace metaformer {

namespace {

// Every tensor of every checkpoint of a run.
bool all_saved_are_finite(const std::filesystem::path& run) {
  for (const auto& entry : std::filesystem::directory_iterator(run / "checkpoints")) {
    if (entry.is_symlink()) continue;
    for (const auto* name : {"model.safetensors", "state.safetensors"})
      for (const auto& [key, tensor] : from_safetensors(read_text(entry.path() / name), name))
        if (!tensor.isfinite().all().item<bool>()) return false;
  }
  return true;
}

int count_lines(const std::filesystem::path& run, const std::string& split) {
  std::istringstream lines(read_text(run / "metrics.jsonl"));
  int count = 0;
  for (std::string line; std::getline(lines, line);) count += nlohmann::json::parse(line)["split"] == split;
  return count;
}

const std::vector<std::string> wild = {"train.steps=60", "train.learning_rate=1e6", "train.warmup_steps=0",
                                       "train.clip=0", "train.weight_decay=0"};

}  // namespace

TEST_CASE("a divergence names step and tensor, and nothing that is not finite is saved", "[divergence]") {
  const Workplace place;
  const auto [code, message] = failure([&] { place.train("run", wild); });
  CHECK(code == ExitCode::diverged);
  CHECK_THAT(message, ContainsSubstring("step ") && ContainsSubstring("is not finite") &&
                          ContainsSubstring("try a lower train.learning_rate"));
  CHECK(all_saved_are_finite(place / "run"));
}

TEST_CASE("a NaN in one parameter is found by name", "[divergence]") {
  const Workplace place;
  Parts parts(place.experiment({}));
  CHECK(parts.parameters->first_not_finite(parts.parameters->values()) == nullptr);
  const auto value = GENERATE(std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity());
  const torch::NoGradGuard no_grad;
  for (const auto& view : parts.parameters->views()) {
    const auto kept = view.parameter.clone();
    view.parameter.flatten()[view.count - 1].fill_(value);
    const auto* found = parts.parameters->first_not_finite(parts.parameters->values());
    REQUIRE(found != nullptr);
    CHECK(found->name == view.name);
    view.parameter.copy_(kept);
  }
}

TEST_CASE("a gradient that is not finite keeps its place for the message", "[divergence]") {
  const Workplace place;
  Parts parts(place.experiment({"train.clip=0.1"}));
  const auto& view = parts.parameters->views()[3];
  view.parameter.register_hook([](torch::Tensor gradient) {
    auto bad = gradient.clone();
    bad.flatten()[0].fill_(std::numeric_limits<double>::quiet_NaN());
    return bad;
  });
  parts.step->run(0, 1e-3);
  CHECK(parts.parameters->first_not_finite(parts.parameters->gradients())->name == view.name);
}

TEST_CASE("a rollback lowers the rate until the run ends, and counts", "[divergence]") {
  const Workplace place;
  auto mended = wild;
  mended.insert(mended.end(), {"train.on_divergence=rollback", "train.rollback_factor=1e-4", "train.max_rollbacks=4",
                               "train.learning_rate=1e9"});
  const auto summary = place.train("run", mended);
  CHECK(summary["steps"] == 60);
  CHECK(summary["rollbacks"].get<int>() >= 1);
  CHECK(std::isfinite(summary["val_loss"].get<double>()));
  CHECK(count_lines(place / "run", "rollback") >= 1);
  CHECK(all_saved_are_finite(place / "run"));
  // The same again to the byte: what a rollback draws depends on nothing but how many there were.
  place.train("again", mended);
  CHECK(model_bytes(place / "run") == model_bytes(place / "again"));
}

TEST_CASE("rollbacks are given up after the number that the config allows", "[divergence]") {
  const Workplace place;
  auto hopeless = wild;
  hopeless.insert(hopeless.end(), {"train.on_divergence=rollback", "train.rollback_factor=1", "train.max_rollbacks=2",
                                   "train.learning_rate=1e30"});
  CHECK(failure([&] { place.train("run", hopeless); }).first == ExitCode::diverged);
  CHECK(all_saved_are_finite(place / "run"));
}

TEST_CASE("norms that stand out are spikes, and teach nothing", "[spike]") {
  SpikeState state;
  for (int step = 0; step < 200; ++step) REQUIRE_FALSE(is_spike(state, 1 + 0.3 * std::sin(step * 1.7), 6));
  const auto before = state.mean;
  CHECK(is_spike(state, 100, 6));
  CHECK(is_spike(state, 1e30, 6));
  CHECK(state.mean == before);
  CHECK(state.count == 2);
  CHECK_FALSE(is_spike(state, 1.2, 6));
  CHECK_FALSE(is_spike(state, 1e-9, 6));  // a small one is none
  for (const double odd : {std::nan(""), std::numeric_limits<double>::infinity(), 0.0, -1.0}) {
    CHECK_FALSE(is_spike(state, odd, 6));
    CHECK(std::isfinite(state.mean));
  }
  CHECK_FALSE(is_spike(state, 1e30, 0));
  SpikeState young;
  CHECK_FALSE(is_spike(young, 1, 6));
  CHECK_FALSE(is_spike(young, 1e6, 6));  // too early to judge
}

TEST_CASE("a skipped spike leaves the parameters as they were", "[spike]") {
  const Workplace place;
  Parts parts(place.experiment({}));
  parts.step->run(0, 1e-2);
  const auto before = parts.parameters->values().clone();
  double seen = 0;
  const auto result = parts.step->run(1, 1e-2, [&](double norm) {
    seen = norm;
    return false;
  });
  CHECK(torch::equal(parts.parameters->values(), before));
  CHECK(seen == result.gradient_norm.item<double>());
  parts.step->run(1, 1e-2, [](double) { return true; });
  CHECK_FALSE(torch::equal(parts.parameters->values(), before));
}

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

TEST_CASE("links that a process died before it could swap are mended", "[checkpoint]") {
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

TEST_CASE("what cannot fit into memory is refused before anything is made", "[memory]") {
  const Workplace place;
  const auto [code, message] = failure([&] {
    place.train("run", {"model.width=65536", "model.heads=8", "model.layers=1024"});
  });
  CHECK(code == ExitCode::out_of_memory);
  CHECK_THAT(message, ContainsSubstring("model.context or model.width, or train with --force"));
  CHECK_FALSE(std::filesystem::exists(place / "run"));
}

}  // namespace metaformer
