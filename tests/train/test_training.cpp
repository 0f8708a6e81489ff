// Whole trainings on small texts.

#include <map>
#include <sstream>

#include "base/error.h"
#include "run/checkpoint_surgery.h"
#include "support/failure.h"
#include "support/workplace.h"
#include "train/step.h"

namespace metaformer {

TEST_CASE("accumulated batches give the gradient of the big batch", "[training]") {
  const Workplace place;
  Parts big(place.experiment({"train.batch_size=12", "train.clip=0"}));
  Parts small(place.experiment({"train.batch_size=3", "train.accumulate=4", "train.clip=0"}));
  for (std::int64_t step = 0; step < 3; ++step) {
    const auto one = big.run(step, 1e-3), four = small.run(step, 1e-3);
    CHECK(four.loss.item<double>() == Approx(one.loss.item<double>()).epsilon(1e-6));
    CHECK(four.gradient_norm.item<double>() == Approx(one.gradient_norm.item<double>()).epsilon(1e-5));
    CHECK(torch::allclose(small.parameters->gradients(), big.parameters->gradients(), 1e-4, 1e-7));
  }
  CHECK(big.task.batches->tokens_per_step() == small.task.batches->tokens_per_step());
}

TEST_CASE("an accumulated step draws what its batches draw one by one", "[training]") {
  const Workplace place;
  Parts parts(place.experiment({"train.accumulate=2", "train.clip=0", "model.dropout=0.3"}));
  constexpr std::int64_t step = 3;
  StepPasses passes(static_cast<std::uint64_t>(parts.experiment.config.train.seed), torch::kCPU);
  passes.set_step(step);
  const auto batches = parts.batches(step);
  const auto weight = (batches[0].weight + batches[1].weight).to(torch::kFloat);
  for (const std::int64_t micro : {0, 1}) {
    auto pass = passes.pass(micro * parts.experiment.config.train.batch_size);
    const auto& batch = batches[static_cast<std::size_t>(micro)];
    const auto sum = parts.task.objective->loss(parts.model->forward(batch, nullptr, pass), batch);
    (sum / weight).backward();
  }
  const auto expected = parts.parameters->gradients().clone();
  parts.run(step, 0);
  CHECK(torch::equal(parts.parameters->gradients(), expected));
}

TEST_CASE("clipping scales the gradient to the limit and reports the norm before", "[training]") {
  const Workplace place;
  Parts parts(place.experiment({"train.clip=0.01"}));
  const auto result = parts.run(0, 1e-3);
  CHECK(result.gradient_norm.item<double>() > 0.01);
  CHECK(parts.parameters->gradients().norm().item<double>() == Approx(0.01).epsilon(1e-3));
}

TEST_CASE("training learns, and the same seed gives the same run to the byte", "[training]") {
  const Workplace place;
  const std::vector<std::string> longer = {"train.steps=150", "train.eval_interval=50", "train.learning_rate=0.01",
                                           "model.dropout=0.1"};
  const auto first = place.train("one", longer);
  CHECK(first["val_loss"].get<double>() < 0.6);
  CHECK(first["steps"] == 150);
  place.train("two", longer);
  CHECK(model_bytes(place / "one") == model_bytes(place / "two"));
  CHECK(metrics_without_time(place / "one") == metrics_without_time(place / "two"));
  auto other_seed = longer;
  other_seed.push_back("train.seed=2");
  place.train("three", other_seed);
  CHECK(model_bytes(place / "one") != model_bytes(place / "three"));
}

TEST_CASE("metrics continue without a gap or a repeated line", "[training]") {
  const Workplace place;
  place.train("whole", {});
  place.train("cut", {});
  // As if the process had died after step 8: its checkpoint is whole, later lines were written already.
  const auto checkpoints = place / "cut/checkpoints";
  for (const auto* name : {"step-12", "last", "best"}) std::filesystem::remove_all(checkpoints / name);
  std::filesystem::remove(place / "cut/summary.json");
  std::ofstream(place / "cut/metrics.jsonl", std::ios::app) << R"({"step":12,"spl)";
  REQUIRE(std::filesystem::exists(checkpoints / "step-8"));
  place.train("cut", {}, true);
  CHECK(metrics_without_time(place / "cut") == metrics_without_time(place / "whole"));
  CHECK(model_bytes(place / "cut") == model_bytes(place / "whole"));
}

TEST_CASE("an evaluation that a stop cut short is made up for", "[training]") {
  const Workplace place;
  place.train("whole", {});
  place.train("cut", {});
  const auto checkpoints = place / "cut/checkpoints";
  // As if stopped while evaluating step 12, the last: saved, but without its metrics, links and summary.
  const auto before = read_meta(checkpoints / "step-8");
  change_meta(checkpoints / "step-12", [&](auto& meta) {
    for (const auto* key : {"evaluated_step", "validation", "best", "evaluations_since_best"}) meta[key] = before[key];
  });
  std::filesystem::remove(place / "cut/summary.json");
  auto lines = read_text(place / "cut/metrics.jsonl");
  lines.resize(lines.rfind('\n', lines.size() - 2) + 1);
  std::ofstream(place / "cut/metrics.jsonl") << lines;
  auto cut = place.train("cut", {}, true),
       whole = nlohmann::ordered_json::parse(read_text(place / "whole/summary.json"));
  CHECK(metrics_without_time(place / "cut") == metrics_without_time(place / "whole"));
  for (const auto* key : {"steps", "train_loss", "val_loss", "best_val_loss", "best_step"})
    CHECK(cut[key] == whole[key]);
}

TEST_CASE("random-batch estimates are repeatable and near the whole split; the end evaluates the whole", "[training]") {
  const Workplace place;
  const auto summary = place.train("run", {"train.evaluation=random", "train.evaluation.batches=50"});
  std::istringstream lines(read_text(place / "run/metrics.jsonl"));
  std::map<std::string, int> counts;
  double estimate = 0;
  for (std::string line; std::getline(lines, line);) {
    const auto json = nlohmann::json::parse(line);
    ++counts[json.at("split").get<std::string>()];
    if (json["split"] == "validation_estimate") estimate = json.at("loss").get<double>();
  }
  CHECK(counts ==
        std::map<std::string, int>{{"train", 4}, {"train_estimate", 2}, {"validation_estimate", 2}, {"validation", 1}});
  CHECK(estimate == Approx(summary["val_loss"].get<double>()).epsilon(0.05));
  CHECK(estimate != summary["val_loss"].get<double>());
}

TEST_CASE("an evaluation sees at most the tokens of train.evaluation, and log and summary say how many", "[training]") {
  const Workplace place;
  const std::string kind = GENERATE("limited", "random");
  std::vector<std::string> limited = {"train.evaluation=" + kind, "train.evaluation.tokens=320"};
  const auto summary = place.train("run", limited);
  const auto all = place.train("all", {"train.evaluation=whole"});
  CHECK(summary["evaluated_tokens"] == 320);
  CHECK(summary["validation_tokens"] == all["validation_tokens"]);
  CHECK(summary["validation"]["tokens"] == 320);
  CHECK(all["evaluated_tokens"] == all["validation_tokens"]);
  CHECK(all["validation"]["tokens"] == all["validation_tokens"]);
  const auto log = read_text(place / "run/train.log");
  const auto amount = fmt::format("320 of {} tokens", all["validation_tokens"].get<int>());
  CHECK_THAT(log, ContainsSubstring(amount + " of the validation split (train.evaluation; whole: all of them)"));
  CHECK_THAT(log, ContainsSubstring("validation loss") && ContainsSubstring(" (" + amount + "), best loss"));
  CHECK_THAT(read_text(place / "all/train.log"), !ContainsSubstring("train.evaluation"));
  CHECK((model_bytes(place / "run") == model_bytes(place / "all")));
  // The default is above this split.
  const auto usual = place.train("usual", {});
  CHECK(usual["validation"] == all["validation"]);
  CHECK(metrics_without_time(place / "usual") == metrics_without_time(place / "all"));
  // A run that goes on evaluates the same part.
  limited.emplace_back("train.schedule=constant");
  auto first_half = limited;
  first_half.emplace_back("train.steps=6");
  place.train("cut", first_half);
  CHECK(place.train("cut", limited, true)["validation"] == place.train("straight", limited)["validation"]);
}

TEST_CASE("a large text does not make a short training long", "[training]") {
  const Workplace place;
  std::string text;
  while (text.size() < 8'000'000) text += learnable_text();
  place.folder().write("text.txt", text);
  const std::string kind = GENERATE("limited", "random");
  const auto summary = place.train("run", {"train.steps=3", "train.evaluation=" + kind});
  const auto most = std::get<LimitedEvaluationConfig>(ExperimentConfig{}.train.evaluation).tokens;
  CHECK(summary["evaluated_tokens"] <= most);
  CHECK(summary["evaluated_tokens"].get<double>() > 0.9 * static_cast<double>(most));
  CHECK(summary["validation_tokens"].get<double>() > 2 * static_cast<double>(most));
}

TEST_CASE("resuming falls back over damaged checkpoints and refuses what is not the same run", "[training]") {
  const Workplace place;
  place.train("run", {"train.keep_checkpoints=5"});
  const auto newest = place / "run/checkpoints/step-12/model.safetensors";
  auto bytes = read_text(newest);
  bytes[bytes.size() / 2] ^= 1;
  std::ofstream(newest, std::ios::binary) << bytes;
  const auto run = RunDirectory::open(place / "run");
  CHECK(load_newest_checkpoint(run)->progress.step == 8);
  CHECK_THROWS_WITH(load_checkpoint(run, "step-12", WithOptimizer::no), ContainsSubstring("damaged"));
  CHECK_THROWS_WITH(load_checkpoint(run, "step-99", WithOptimizer::no), ContainsSubstring("it has step-12, step-8"));
  CHECK_THROWS_WITH(place.train("run", {"model.width=32"}, true),
                    ContainsSubstring("model.width is 32 now and was 16"));
  CHECK_THROWS_WITH(place.train("run", {}), ContainsSubstring("already exists"));
  for (const auto* step : {"step-4", "step-8"}) std::ofstream(place / "run/checkpoints" / step / "meta.json") << "{}";
  for (const auto* step : {"step-6"}) std::filesystem::remove_all(place / "run/checkpoints" / step);
  CHECK_THROWS_WITH(load_newest_checkpoint(run), ContainsSubstring("no checkpoint is whole"));
}

TEST_CASE("a finished run is not trained again; an empty folder starts one", "[training]") {
  const Workplace place;
  std::filesystem::create_directories(place / "runs/run");
  const auto summary = place.train("runs/run", {}, true);
  CHECK(place.train("runs/run", {}, true) == summary);
  CHECK(nlohmann::ordered_json::parse(read_text(place / "runs/run/summary.json")) == summary);
  CHECK(std::filesystem::read_symlink(place / "runs/latest") == "run");
}

TEST_CASE("the summary of an earlier end is not taken for that of a longer run", "[training]") {
  const Workplace place;
  place.train("run", {});
  const auto earlier = read_text(place / "run/summary.json");
  auto summary = place.train("run", {"train.steps=16"}, true);
  // As if the process had died between its last checkpoint and its summary.
  std::ofstream(place / "run/summary.json") << earlier;
  auto again = place.train("run", {"train.steps=16"}, true);
  for (const auto* key : {"steps", "val_loss", "best_val_loss", "train_loss"}) CHECK(again[key] == summary[key]);
  CHECK(again["steps"] == 16);
}

TEST_CASE("old checkpoints are removed, the targets of links never", "[training]") {
  const Workplace place;
  // A rate so high that the first evaluation stays the best.
  place.train("run", {"train.steps=40", "train.eval_interval=4", "train.learning_rate=0.5",
                      "train.schedule={kind: constant, warmup_steps: 2}", "train.keep_checkpoints=2"});
  const auto checkpoints = place / "run/checkpoints";
  CHECK(std::filesystem::read_symlink(checkpoints / "last") == "step-40");
  CHECK(
      std::filesystem::exists(checkpoints / std::filesystem::read_symlink(checkpoints / "best") / "model.safetensors"));
  const auto folders = std::count_if(std::filesystem::directory_iterator(checkpoints), {},
                                     [](const auto& entry) { return !entry.is_symlink(); });
  CHECK(folders <= 3);
  CHECK(folders >= 2);
}

TEST_CASE("one batch is overfitted with every mixer", "[training]") {
  const Workplace place;
  const std::string mixer = GENERATE("scaled_dot_product", "quadratic", "metric", "average_pooling", "identity");
  Parts parts(place.experiment({"model.mixer.kind=" + mixer, "model.width=32", "train.batch_size=1"}));
  double loss = 0;
  // Step 0 always: the same window.
  for (int i = 0; i < 300; ++i) loss = parts.run(0, 3e-3).loss.item<double>();
  // Without mixing, a token that has two successors in the window cannot be told apart but by its position.
  CHECK(loss < 0.01);
}

TEST_CASE("bf16 training keeps fp32 weights and follows the fp32 losses", "[training]") {
  const Workplace place;
  const std::string mixer = GENERATE("scaled_dot_product", "quadratic", "metric", "average_pooling");
  Parts wide(place.experiment({"model.mixer.kind=" + mixer})),
      narrow(place.experiment({"model.mixer.kind=" + mixer, "train.precision=bf16"}));
  for (std::int64_t step = 0; step < 20; ++step) {
    const auto one = wide.run(step, 1e-3).loss.item<double>(), other = narrow.run(step, 1e-3).loss.item<double>();
    CHECK(other == Approx(one).epsilon(5e-3));
    if (step == 0) CHECK(other != one);  // it did run in bf16
  }
  for (const auto& parameter : narrow.model->parameters()) CHECK(parameter.scalar_type() == torch::kFloat);
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
