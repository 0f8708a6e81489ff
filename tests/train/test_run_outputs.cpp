// What a run writes about itself beside losses and weights: amounts, times, sessions, samples.

#include "run/checkpoint_surgery.h"
#include "train/trainer.h"

namespace metaformer {

namespace {

using Json = nlohmann::ordered_json;

// As if the process had died after step 8: its checkpoint is whole, later lines were written already.
void forget_after_step_8(const std::filesystem::path& run) {
  forget_end(run, {"step-12", "last", "best"});
  std::ofstream(run / "metrics.jsonl", std::ios::app) << R"({"step":12,"spl)";
}

}  // namespace

TEST_CASE("training lines and the summary give tokens, epochs, clipping, times and memory", "[outputs]") {
  const Workplace place;
  const auto summary = place.train("run", {"train.clip=0.000001"});
  const auto environment = Json::parse(read_text(place / "run/environment.json"));
  const double split = environment["data"]["train_tokens"];
  double earlier = 0;
  for (const auto& line : metrics_of(place / "run", "train")) {
    CHECK(line["tokens"] == line["step"].get<std::int64_t>() * 6 * 16);
    CHECK(line["epoch"].get<double>() == Approx(line["tokens"].get<double>() / split));
    CHECK(line["clipped_fraction"] == 1.0);
    CHECK(line["wall_seconds"].get<double>() >= std::max(earlier, line["seconds"].get<double>()));
    CHECK(line["peak_memory_bytes"].get<std::int64_t>() > 1'000'000);
    earlier = line["wall_seconds"];
  }
  CHECK(summary["tokens"] == 12 * 6 * 16);
  CHECK(summary["epochs"].get<double>() == Approx(12 * 6 * 16 / split));
  CHECK(summary["clipped_fraction"] == 1.0);
  double phases = 0;
  for (const auto* phase : {"evaluation_seconds", "checkpoint_seconds", "train_seconds"}) {
    CHECK(summary[phase] > 0);
    phases += summary[phase].get<double>();
  }
  CHECK(summary["startup_seconds"] > 0);
  CHECK(summary["wall_seconds"] >= phases);
  CHECK(place.train("loose", {"train.clip=0"})["clipped_fraction"] == 0.0);
}

TEST_CASE("an epoch is every training text once, and a sorter has none", "[outputs]") {
  const Workplace place;
  std::string table = "text,label\n";
  for (int i = 0; i < 100; ++i) table += fmt::format("w{} x,c{}\n", i, i % 2);
  const auto file = place.folder().write("table.csv", table).string();
  const auto classified =
      place.train("classified", {"task=classification", "data.path='" + file + "'", "task.baselines=false"});
  const double held_out = classified["validation"]["texts"];
  CHECK(classified["epochs"].get<double>() == Approx(12 * 6 / (100 - held_out)));
  const auto sorted = place.train("sorted", {"task=sort", "task.length=4"});
  CHECK(sorted["epochs"].is_null());
  CHECK_FALSE(metrics_of(place / "sorted", "train").front().contains("epoch"));
}

TEST_CASE("clipped steps and times are counted on by a resumed run", "[outputs]") {
  const Workplace place;
  place.train("free", {"train.log_interval=1", "train.schedule={kind: constant, warmup_steps: 2}", "train.clip=0"});
  std::vector<double> norms;
  for (const auto& line : metrics_of(place / "free", "train")) norms.push_back(line["gradient_norm"]);
  std::sort(norms.begin(), norms.end());
  const Overrides some_clipped = {"train.schedule={kind: constant, warmup_steps: 2}",
                                  "train.clip=" + std::to_string(norms[norms.size() / 2])};
  const auto whole = place.train("whole", some_clipped);
  CHECK(whole["clipped_fraction"] > 0.0);
  CHECK(whole["clipped_fraction"] < 1.0);
  copy_run(place / "whole", place / "cut");
  forget_after_step_8(place / "cut");
  const auto before = read_meta(place / "cut/checkpoints/step-8");
  const auto cut = place.train("cut", some_clipped, true);
  CHECK(metrics_without_time(place / "cut") == metrics_without_time(place / "whole"));
  for (const auto* phase : {"evaluation_seconds", "checkpoint_seconds", "startup_seconds", "wall_seconds"})
    CHECK(cut[phase] > before[phase]);
  for (const auto* key : {"steps", "train_loss", "val_loss", "best_val_loss", "best_step", "clipped_fraction"})
    CHECK(cut[key] == whole[key]);
}

TEST_CASE("samples while training change nothing else, for every mixer", "[samples]") {
  const std::string mixer =
      GENERATE("scaled_dot_product", "quadratic", "metric", "average_pooling", "identity", "none");
  const Workplace place;
  const Overrides plain = {"model.mixer.kind=" + mixer, "model.dropout=0.1"};
  place.train("plain", plain);
  place.train("sampled", joined(plain, {"task.sample_interval=5"}));
  CHECK(model_bytes(place / "plain") == model_bytes(place / "sampled"));
  CHECK(metrics_without_time(place / "plain") == metrics_without_time(place / "sampled"));
  CHECK_FALSE(std::filesystem::exists(place / "plain/samples.jsonl"));
  const auto samples = json_lines(place / "sampled/samples.jsonl");
  REQUIRE(samples.size() == 2);
  CHECK(samples[0]["step"] == 5);
  CHECK(samples[1]["step"] == 10);
  CHECK(samples[0]["text"].get<std::string>().size() == 200);
  CHECK(samples[0]["seed"] != samples[1]["seed"]);
  CHECK_THAT(read_text(place / "sampled/train.log"), ContainsSubstring("sample at step 10:"));
}

TEST_CASE("a resumed run has the samples of an undisturbed one", "[samples]") {
  const Workplace place;
  const Overrides sampled = {"task.sample_interval=4"};
  place.train("whole", sampled);
  copy_run(place / "whole", place / "cut");
  const auto whole = read_text(place / "whole/samples.jsonl");
  const auto cut = place / "cut/samples.jsonl";
  forget_after_step_8(place / "cut");
  // The process may have died in the text of step 12, or a signal may have come between step 8 and its text.
  const auto kept = GENERATE(as<std::size_t>(), 1, 2);
  std::size_t end = 0;
  for (std::size_t i = 0; i < kept; ++i) end = whole.find('\n', end) + 1;
  std::ofstream(cut) << whole.substr(0, end) << R"({"step":12,"te)";
  place.train("cut", sampled, true);
  CHECK(read_text(cut) == whole);
}

TEST_CASE("the progress line shows a moving mean, and counts coming evaluations in the time left", "[progress]") {
  TrainConfig config;
  config.steps = 105;
  config.eval_interval = 10;
  ProgressLine line(config, 1000);
  CHECK(line.text(50, 1e-3, 0) == "step 50/105  lr 1.00e-03");
  line.add_losses(4, 1);
  CHECK(line.text(50, 1e-3, 0.1) == "step 50/105  loss 4.0000  lr 1.00e-03  10.0k tokens/s  ETA 6s");
  line.add_evaluation(9);
  line.add_evaluation(11);
  CHECK_THAT(line.text(50, 1e-3, 0.1), ContainsSubstring("10.0k tokens/s  ETA 1m06s"));  // 60, 70, 80, 90, 100 and 105
  CHECK_THAT(line.text(105, 1e-3, 0.1), ContainsSubstring("ETA 0s"));
  for (int step = 0; step < 1000; ++step) line.add_losses(2, 1);
  CHECK_THAT(line.text(50, 1e-3, 0), ContainsSubstring("loss 2.0000"));
  line.add_losses(3, 1);
  CHECK_THAT(line.text(50, 1e-3, 0), ContainsSubstring("loss 2.0200"));
  ProgressLine together(config, 1000);
  together.add_losses(6, 2);
  CHECK_THAT(together.text(50, 1e-3, 0), ContainsSubstring("loss 3.0000"));
}

}  // namespace metaformer
