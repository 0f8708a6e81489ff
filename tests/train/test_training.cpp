// Whole trainings on small texts: their results, their end, and their output.

#include "ops/named_tensors.h"
#include "run/checkpoint_surgery.h"
#include "support/failure.h"
#include "tasks/task_examples.h"
#include "train/optim/learning_rate.h"
#include "train/trainer.h"

namespace metaformer::test_training {

namespace {

// Evaluates after every second step, with a rate so high that the loss soon stops falling.
Overrides impatient(const std::string& patience, const std::string& mode = "whole") {
  return {"train.steps=400",
          "train.eval_interval=2",
          "train.checkpoint_interval=3",
          "train.patience=" + patience,
          "train.learning_rate=0.3",
          "train.schedule={kind: constant, warmup_steps: 2}",
          "train.evaluation=" + mode,
          "model.dropout=0.1",
          mode == "random" ? "train.evaluation.batches=2" : "train.log_interval=3"};
}

using Json = nlohmann::ordered_json;

// Changes a run as if the process had died after step 8, with a whole checkpoint and later lines already written.
void forget_after_step_8(const std::filesystem::path& run) {
  forget_end(run, {"step-12", "last", "best"});
  std::ofstream(run / "metrics.jsonl", std::ios::app) << R"({"step":12,"spl)";
}

}  // namespace

TEST_CASE("an accumulated step has the random numbers of its batches one by one", "[training]") {
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
    const auto sum = parts.task.objective(parts.model->forward(batch, nullptr, pass), batch);
    (sum / weight).backward();
  }
  const auto expected = parts.parameters->gradients().clone();
  parts.run(step, 0);
  CHECK(torch::equal(parts.parameters->gradients(), expected));
}

TEST_CASE("training learns, and the same seed gives the same run to the byte", "[training]") {
  const Workplace place;
  const Overrides longer = {"train.steps=150", "train.eval_interval=50", "train.checkpoint_interval=50",
                            "train.learning_rate=0.01", "model.dropout=0.1"};
  const auto first = place.train("one", longer);
  CHECK(first["val_loss"].get<double>() < 0.6);
  CHECK(first["steps"] == 150);
  place.train("two", longer);
  CHECK(model_bytes(place / "one") == model_bytes(place / "two"));
  CHECK(metrics_without_time(place / "one") == metrics_without_time(place / "two"));
  place.train("three", joined(longer, {"train.seed=2"}));
  CHECK(model_bytes(place / "one") != model_bytes(place / "three"));
}

TEST_CASE("an evaluation has at most the tokens of train.evaluation, and log and summary have their number",
          "[training]") {
  const Workplace place;
  const std::string kind = GENERATE("limited", "random");
  const Overrides limited = {"train.evaluation=" + kind, "train.evaluation.tokens=320"};
  const auto summary = place.train("run", limited);
  const auto all = place.train("all", {"train.evaluation=whole"});
  if (kind == "random") {
    CHECK(metrics_of(place / "run", "train_estimate").size() == 2);
    CHECK(metrics_of(place / "run", "validation_estimate").size() == 2);
    CHECK(metrics_of(place / "run", "validation").size() == 1);  // at the end
  }
  CHECK(summary["evaluated_tokens"] == 320);
  CHECK(summary["validation_tokens"] == all["validation_tokens"]);
  CHECK(summary["validation"]["tokens"] == 320);
  CHECK(all["evaluated_tokens"] == all["validation_tokens"]);
  CHECK(all["validation"]["tokens"] == all["validation_tokens"]);
  CHECK_THAT(read_text(place / "run/train.log"),
             ContainsSubstring(fmt::format("320 of {} tokens", all["validation_tokens"].get<int>())) &&
                 ContainsSubstring("train.evaluation"));
  CHECK_THAT(read_text(place / "all/train.log"), !ContainsSubstring("train.evaluation"));
  CHECK((model_bytes(place / "run") == model_bytes(place / "all")));
  // The default is larger than this split.
  const auto usual = place.train("usual", {});
  CHECK(usual["validation"] == all["validation"]);
  CHECK(metrics_without_time(place / "usual") == metrics_without_time(place / "all"));
  // A resumed run evaluates the same part.
  const auto constant = joined(limited, {"train.schedule=constant"});
  place.train("cut", joined(constant, {"train.steps=6"}));
  CHECK(place.train("cut", constant, true)["validation"] == place.train("straight", constant)["validation"]);
}

TEST_CASE("the default number of tokens limits the evaluation of a large text", "[training]") {
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

TEST_CASE("another config, an existing folder and a run without a whole checkpoint are refused", "[training]") {
  const Workplace place;
  place.train("run", {});
  const auto run = RunDirectory::open(place / "run");
  CHECK_THROWS_WITH(load_checkpoint(run, "step-99", WithOptimizer::no), ContainsSubstring("it has step-12 or step-8"));
  CHECK_THROWS_WITH(place.train("run", {"model.width=32"}, true), Mentions("model.width|32|16"));
  CHECK_THROWS_WITH(place.train("run", {}), ContainsSubstring("already exists"));
  for (const auto& entry : std::filesystem::directory_iterator(place / "run/checkpoints"))
    if (!entry.is_symlink()) std::ofstream(entry.path() / "meta.json") << "{}";
  CHECK_THROWS_WITH(load_newest_checkpoint(run), ContainsSubstring("no checkpoint is whole"));
}

TEST_CASE("a finished run is not trained again, and a run can start in an empty folder", "[training]") {
  const Workplace place;
  std::filesystem::create_directories(place / "runs/run");
  const auto summary = place.train("runs/run", {}, true);
  CHECK(place.train("runs/run", {}, true) == summary);
  CHECK(std::filesystem::read_symlink(place / "runs/latest") == "run");
  const auto earlier = read_text(place / "runs/run/summary.json");
  CHECK(nlohmann::ordered_json::parse(earlier) == summary);
  const Overrides more = {"train.steps=16"};
  const auto longer = place.train("runs/run", more, true);
  // As if the process had died between its last checkpoint and its summary: the earlier summary is not used.
  std::ofstream(place / "runs/run/summary.json") << earlier;
  const auto again = place.train("runs/run", more, true);
  for (const auto* key : {"steps", "val_loss", "best_val_loss", "train_loss"}) CHECK(again.at(key) == longer.at(key));
  CHECK(again["steps"] == 16);
}

TEST_CASE("old checkpoints are removed, except the targets of links", "[training]") {
  const Workplace place;
  // A rate so high that the first evaluation stays the best.
  place.train("run", {"train.steps=40", "train.eval_interval=4", "train.learning_rate=0.5",
                      "train.schedule={kind: constant, warmup_steps: 2}", "train.keep_checkpoints=2"});
  const auto checkpoints = place / "run/checkpoints";
  CHECK(std::filesystem::read_symlink(checkpoints / "last") == "step-40");
  CHECK(std::filesystem::exists(checkpoints / "best/model.safetensors"));
  const auto folders = std::count_if(std::filesystem::directory_iterator(checkpoints), {},
                                     [](const auto& entry) { return !entry.is_symlink(); });
  CHECK((folders == 2 || folders == 3));
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

TEST_CASE("a model that cannot fit into memory is refused before a run exists", "[memory]") {
  const Workplace place;
  const Overrides large = {"model.width=65536", "model.heads=8", "model.layers=1024"};
  CHECK_THAT(message_of(ExitCode::out_of_memory, [&] { place.train("run", large); }),
             ContainsSubstring("model.width") && ContainsSubstring("--force"));
  CHECK_FALSE(std::filesystem::exists(place / "run"));
}

TEST_CASE("the first batch can be overfitted, with several tasks and mixers", "[training]") {
  const Workplace place;
  const std::string key = GENERATE("task=language_model", "task=masked_language_model", "task=sort",
                                   "task=classification", "model.mixer=scaled_dot_product", "model.mixer=quadratic",
                                   "model.mixer=metric", "model.mixer=average_pooling", "model.mixer=identity");
  CAPTURE(key);
  const Overrides common =
      joined(evaluates_and_saves_once, {"train.steps=400", "train.learning_rate=1e-2", "train.schedule.warmup_steps=10",
                                        "train.batch_size=2", "train.overfit_batch=true"});
  const Overrides of_mixer = {key, "model.width=32", "train.batch_size=1", "train.learning_rate=3e-3",
                              "train.schedule={kind: constant, warmup_steps: 10}"};
  const auto summary = place.train("run", key == "task=sort"             ? sorter(common)
                                          : key == "task=classification" ? classifier(place, common)
                                          : key.starts_with("task")      ? joined(common, {key})
                                                                         : joined(common, of_mixer));
  CHECK(summary["train_loss"] < (key.starts_with("task") ? 0.02 : 0.01));
  CHECK(summary["val_loss"].get<double>() == Approx(summary["train_loss"].get<double>()).margin(0.01));
}

TEST_CASE("training ends after as many evaluations without a better loss as the config allows", "[patience]") {
  const Workplace place;
  const auto summary = place.train("run", impatient("3"));
  const auto steps = summary["steps"].get<std::int64_t>();
  REQUIRE(steps < 400);
  CHECK(summary["stopped_early"] == true);
  std::vector<double> losses;
  for (const auto& line : metrics_of(place / "run", "validation")) losses.push_back(line["loss"]);
  REQUIRE(std::ssize(losses) == steps / 2);
  const auto best = std::min_element(losses.begin(), losses.end());
  CHECK(losses.end() - best == 4);  // the best and three more
  CHECK(summary["best_val_loss"] == *best);
  CHECK(summary["best_step"] == (best - losses.begin() + 1) * 2);
  CHECK(summary["val_loss"] == losses.back());
  for (const auto& [link, step] : {std::pair("last", steps), {"best", summary["best_step"].get<std::int64_t>()}})
    CHECK(std::filesystem::read_symlink(place / "run/checkpoints" / link) == fmt::format("step-{}", step));
  const auto patient = place.train("patient", joined(impatient("0"), {fmt::format("train.steps={}", steps + 4)}));
  CHECK((patient["steps"] == steps + 4 && patient["stopped_early"] == false));
}

TEST_CASE("a run ends early at the same step also after an interruption, and can be resumed with more patience",
          "[patience]") {
  const Workplace place;
  const auto mode = GENERATE("whole", "random");
  const auto whole = place.train("whole", impatient("4", mode));
  const auto steps = whole["steps"].get<std::int64_t>();
  REQUIRE(steps < 400);
  CHECK(whole["stopped_early"] == true);
  CHECK(whole["val_loss"] == metrics_of(place / "whole", "validation").back()["loss"]);  // of the whole split
  // As if the process had died during the last evaluations.
  copy_run(place / "whole", place / "cut");
  forget_end(place / "cut", {fmt::format("step-{}", steps), "last", "best"});
  CHECK(place.train("cut", impatient("4", mode), true)["steps"] == steps);
  CHECK(model_bytes(place / "cut") == model_bytes(place / "whole"));
  CHECK(metrics_without_time(place / "cut") == metrics_without_time(place / "whole"));

  CHECK(place.train("whole", impatient("4", mode), true) == whole);  // finished
  CHECK(place.train("whole", impatient("6", mode), true)["steps"] > steps);
  place.train("longer", impatient("6", mode));
  CHECK(model_bytes(place / "whole") == model_bytes(place / "longer"));
  CHECK(metrics_without_time(place / "whole") == metrics_without_time(place / "longer"));
}

TEST_CASE("recurrent and feed-forward language models learn in every precision", "[language_models]") {
  const Workplace place;
  const std::string model = GENERATE("{kind: lstm, width: 16}", "{kind: lstm, width: 16, carry_state: true}",
                                     "{kind: gru, width: 16, carry_state: true, embedding: {tie: false}}",
                                     "{kind: feed_forward, window: 4, width: 8, hidden: 16}");
  const std::string precision = GENERATE("fp32", "bf16", "fp16");
  INFO(model << ", " << precision);
  const auto summary =
      place.train("run", {"model=" + model, "train.steps=150", "train.learning_rate=1e-2", "train.eval_interval=150",
                          "train.checkpoint_interval=150", "train.schedule={kind: constant, warmup_steps: 5}",
                          "train.precision=" + precision});
  // The text is a cycle of words with a letter between: without context its characters have 2.8 nats.
  CHECK(summary.at("val_loss").get<double>() < 0.6);
}

TEST_CASE("a carried state is the state after the earlier tokens, in training and in evaluation", "[language_models]") {
  const Workplace place;
  const std::string kind = GENERATE("lstm", "gru"), slices = GENERATE("1", "2");
  const auto experiment = place.experiment({"model={kind: " + kind + ", width: 16, carry_state: true}",
                                            "train.accumulate=2", "train.cpu_slices=" + slices, "train.steps=4"});
  const auto task = make_task(experiment.config, true);
  Step setup(experiment.config, task, torch::kCPU);
  const torch::NoGradGuard no_grad;
  // Without a change of weights, the memory after four steps is the state after one pass over their tokens.
  for (std::int64_t step = 0; step < 4; ++step) {
    const torch::AutoGradMode with_gradients(true);
    setup.run(step, /*learning_rate=*/0);
  }
  std::vector<torch::Tensor> ids;
  for (std::int64_t step = 0; step < 4; ++step) {
    std::vector<torch::Tensor> rows;
    for (std::int64_t micro = 0; micro < 2; ++micro)
      rows.push_back(task.batches->training_batch(step, micro, torch::kCPU).ids_bc);
    ids.push_back(torch::cat(rows));
  }
  const auto state = setup.model->new_state(12, 64);
  setup.model->evaluate({.ids_bc = torch::cat(ids, 1)}, state.get());
  const auto expected_lbd = state->tensors()[1].second;
  const auto tensors = setup.memory->tensors();
  const auto hidden = std::find_if(tensors.begin(), tensors.end(), [](auto& t) { return t.first.ends_with("hidden"); });
  REQUIRE(hidden != tensors.end());
  CHECK(torch::allclose(hidden->second, expected_lbd, 1e-5, 1e-6));

  // The rows of the evaluation, each in a single pass.
  const NetworkPredictor predictor(*setup.model);
  double targets = 0;
  std::vector<torch::Tensor> inputs, outputs;
  for (std::int64_t i = 0; i < task.batches->evaluation_batches(Split::validation); ++i) {
    const auto batch = task.batches->evaluation_batch(Split::validation, i, torch::kCPU);
    inputs.push_back(batch.ids_bc);
    outputs.push_back(batch.targets_bc);
    targets += batch.weight.item<double>();
  }
  const auto logits_bcv = setup.model->evaluate({.ids_bc = torch::cat(inputs, 1)});
  const double loss = at::cross_entropy_loss(logits_bcv.flatten(0, 1), torch::cat(outputs, 1).flatten(), {},
                                             at::Reduction::Sum, /*ignore_index=*/-1)
                          .item<double>();
  const auto found = evaluate_split({predictor, task}, Split::validation);
  CHECK(found.at("loss") == Approx(loss / targets).epsilon(1e-5));
}

TEST_CASE("recurrent and feed-forward models sort lists", "[language_models][sort]") {
  const Workplace place;
  const std::string model =
      GENERATE("{kind: lstm, width: 32, layers: 1, context: 8}", "{kind: gru, width: 32, layers: 1, context: 8}",
               "{kind: feed_forward, window: 8, width: 16, hidden: 64, context: 8}");
  const auto summary = place.train(
      "run", {"task={kind: sort, length: 4, digits: 3}", "model=" + model, "train.steps=600", "train.batch_size=32",
              "train.learning_rate=1e-2", "train.eval_interval=600", "train.checkpoint_interval=600"});
  CHECK(summary.at("validation").at("accuracy").get<double>() > 0.9);
}

TEST_CASE("the noam schedule uses the width of recurrent and feed-forward models", "[language_models]") {
  const Workplace place;
  const auto rate = [&](const std::string& model) {
    const auto experiment = place.experiment({"model=" + model, "train.schedule={kind: noam, warmup_steps: 10}"});
    return scheduled_rate(experiment.config.train, width_of(experiment.config.model), 3);
  };
  CHECK(rate("{kind: lstm, width: 16}") == Approx(2 * rate("{kind: lstm, width: 64}")));
  CHECK(rate("{kind: feed_forward, width: 16}") == Approx(rate("{kind: lstm, width: 16}")));
}

TEST_CASE("the loss of a masked language model falls below half the entropy of its tokens", "[masking]") {
  const Workplace place;
  const bool packs = GENERATE(false, true);
  const Overrides packed = {"data.path=" + documents(place), "data.packing=spfhp", "data.tokenizer=byte"};
  const Overrides overrides = {"task=masked_language_model", "train.steps=500", "train.learning_rate=5e-3",
                               "train.batch_size=16",        "model.width=32",  "model.mixer=scaled_dot_product",
                               "model.positions=rotary"};
  const auto summary =
      place.train("run", joined(joined(overrides, evaluates_and_saves_once), packs ? packed : Overrides{}));
  const auto& validation = summary["validation"];
  CHECK(validation["loss"].get<double>() < 0.5 * validation["unigram_entropy"].get<double>());
  CHECK(validation["perplexity"].get<double>() == Approx(std::exp(validation["loss"].get<double>())));
  CHECK(validation["accuracy"].get<double>() > 0.5);
  CHECK(validation["targets"].get<double>() > 20);
}

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

TEST_CASE("an epoch has every training text once, and a sorter has no epochs", "[outputs]") {
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

TEST_CASE("a resumed run continues the sums of clipped steps and times", "[outputs]") {
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

TEST_CASE("samples during training change nothing else, with several mixers", "[samples]") {
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

TEST_CASE("a resumed run has the samples of an uninterrupted one", "[samples]") {
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

TEST_CASE("the progress line has a moving mean of the loss, and its ETA includes later evaluations", "[progress]") {
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

}  // namespace metaformer::test_training
