// Classification, in whole trainings and in parts, and the recalibration of classifiers.

#include <cmath>

#include "base/rows.h"
#include "tasks/calibration.h"
#include "tasks/classification_task.h"
#include "tasks/evaluation.h"
#include "tasks/task_examples.h"

namespace metaformer::test_classification_task {

namespace {

// A table whose texts have a word for their label; labels are CSV fields, quoted if necessary.
std::string table_of(const std::vector<std::string>& labels, int texts_of_each) {
  std::string table = "text,label\n";
  for (int i = 0; i < texts_of_each; ++i)
    for (std::size_t label = 0; label < labels.size(); ++label)
      table += "word" + std::to_string(label) + " n" + std::to_string(i) + "," + csv_field(labels[label]) + "\n";
  return table;
}

std::vector<std::vector<std::string>> csv_rows(const std::string& text) {
  std::vector<std::vector<std::string>> rows;
  for_each_csv_row(text, [&](DelimitedRow&& row) { rows.push_back(std::move(row.fields)); });
  return rows;
}

std::string event_bytes(const std::filesystem::path& run) {
  std::string bytes;
  for (const auto& entry : std::filesystem::directory_iterator(run))
    if (entry.path().filename().string().starts_with("events.")) bytes += read_text(entry.path());
  return bytes;
}

// A run that evaluates twice, with the same table for all splits.
nlohmann::ordered_json train_with_labels(const Workplace& place, const std::vector<std::string>& labels) {
  place.folder().write("table.csv", table_of(labels, 12));
  const auto path = "'" + (place / "table.csv").string() + "'";
  return place.train(
      "run", {"task=classification", "task.baselines=false", "train.steps=8", "train.eval_interval=4", "model.layers=1",
              "data.path=" + path, "data.validation_path=" + path, "data.test_path=" + path});
}

}  // namespace

TEST_CASE("a classifier learns that one word anywhere in a padded text decides, with several mixers and heads",
          "[classification]") {
  const Workplace place;
  // If no token sees another, one token's logits outweigh those of all others only after long training.
  const auto [mixer, head, rate] =
      GENERATE(table<std::string, std::string, std::string>({{"scaled_dot_product", "per_token_mean", "3e-3"},
                                                             {"metric", "per_token_mean", "3e-3"},
                                                             {"scaled_dot_product", "first_token", "1e-2"},
                                                             {"average_pooling", "mean_pooled", "3e-3"},
                                                             {"identity", "mean_pooled", "3e-3"}}));
  const auto summary =
      place.train("run", classifier(place, {"model.mixer.kind=" + mixer, "task.head=" + head,
                                            head == "first_token" ? "model.width=16" : "model.width=32",
                                            "train.steps=250", "train.learning_rate=" + rate}));
  CHECK(summary["validation"]["accuracy"] == 1.0);
  const auto& classes = summary["validation"]["classes"];
  CHECK(classes["good"]["texts"] == classes["good"]["correct"]);
  CHECK(classes["bad"]["texts"] == classes["bad"]["predicted"]);
  const auto texts = classes["good"]["texts"].get<int>() + classes["bad"]["texts"].get<int>();
  CHECK(texts == summary["validation"]["texts"]);
  CHECK(texts > 300);
}

TEST_CASE("a diverged classifier has a loss of NaN, and no AUC or calibration error", "[classification][divergence]") {
  const Workplace place;
  Parts parts(place.experiment(classifier(place)));
  parts.parameters->values().fill_(std::numeric_limits<float>::quiet_NaN());
  const auto metrics = evaluate_split({parts.predictor(), parts.task}, Split::validation);
  CHECK(std::isnan(metrics.at("loss")));
  CHECK_FALSE(metrics.find("auc"));
  CHECK_FALSE(metrics.find("calibration_error"));
}

TEST_CASE("class weights and smoothing change the training loss, but not the reported loss", "[classification]") {
  const Workplace place;
  Parts plain(place.experiment(classifier(place)));
  Parts changed(place.experiment(classifier(place, {"task.label_smoothing=0.2", "task.class_weights=balanced"})));
  const torch::NoGradGuard no_grad;
  const auto batch = plain.task.batches->training_batch(0, 0, torch::kCPU);
  const auto logits = plain.model->evaluate(batch).to(torch::kDouble);
  // By hand: the weight of a class is texts / (classes * its texts); smoothing gives every class 0.2 / 2 of the target.
  double good = 0, all = 0;
  for (std::int64_t i = 0; i < plain.task.batches->evaluation_batches(Split::train); ++i) {
    const auto labels = plain.task.batches->evaluation_batch(Split::train, i, torch::kCPU).labels_l;
    good += labels.sum().item<double>();
    all += static_cast<double>(labels.numel());
  }
  const auto weights = torch::tensor({all / (2 * (all - good)), all / (2 * good)}, torch::kDouble);
  const auto losses_bv = -torch::log_softmax(logits, 1);
  const auto exact_b = losses_bv.gather(1, batch.labels_l.unsqueeze(1)).squeeze(1);
  const auto weighted = 0.8 * (weights.index({batch.labels_l}) * exact_b).sum() + 0.1 * (losses_bv * weights).sum();
  CHECK(plain.task.objective(plain.model->evaluate(batch), batch).item<double>() ==
        Approx(exact_b.sum().item<double>()));
  CHECK(changed.task.objective(changed.model->evaluate(batch), batch).item<double>() ==
        Approx(weighted.item<double>()));
  const auto report = [&](Parts& parts) { return evaluate_split({parts.predictor(), parts.task}, Split::validation); };
  CHECK(report(changed) == report(plain));
}

TEST_CASE("the test split is evaluated once, with the checkpoint that validation chose", "[classification]") {
  const Workplace place;
  place.folder().write("test.tsv", marked_table(200));
  const auto summary =
      place.train("run", classifier(place, {"train.steps=150", "task.baselines=false",
                                            "data.test_path='" + (place / "test.tsv").string() + "'"}));
  auto run = load_run(place / "run", "best", "cpu");
  const auto task = make_task(run.experiment.config, true, std::move(run.codec));
  const auto sums = score_split({*run.predictor, task}, Split::test);
  auto expected = report_of(task, Split::test, sums);
  CHECK(summary["temperature"] == *run.progress.temperature);
  add_scaled_scores(expected, task, sums, run.progress.temperature);
  CHECK(summary["test"] == json_of(expected));
  CHECK(run.progress.step == summary["best_step"].get<std::int64_t>());
  CHECK(summary["best_val_error"].get<double>() == 1 - run.progress.validation->at("accuracy"));
  CHECK(metrics_of(place / "run", "test").size() == 1);
}

TEST_CASE("confusion tables are separate files, written at the end of training", "[classification]") {
  const Workplace place;
  const auto summary = train_with_labels(place, {"a, b", "say \"no\"", "plain", "two\nlines", "ü = 'x';"});
  const auto labels = nlohmann::json::parse(read_text(place / "run/checkpoints/last/labels.json"));
  for (const std::string split : {"validation", "test"}) {
    CAPTURE(split);
    const auto rows = csv_rows(read_text(place / "run" / ("confusion_" + split + ".csv")));
    REQUIRE(rows.size() == 6);
    CHECK(rows[0][0] == "true_label");
    for (std::size_t i = 0; i < 5; ++i) {
      const auto name = labels[i].get<std::string>();
      CHECK((rows[0][i + 1] == name && rows[i + 1][0] == name));
      std::int64_t texts = 0, predicted = 0;
      for (std::size_t other = 1; other < 6; ++other) {
        texts += std::stoll(rows[i + 1][other]);
        predicted += std::stoll(rows[other][i + 1]);
      }
      const auto& reported = summary[split]["classes"][name];
      CHECK(reported["texts"] == texts);
      CHECK(reported["predicted"] == predicted);
      CHECK(reported["correct"] == std::stoll(rows[i + 1][i + 1]));
    }
  }
  const auto lines = read_text(place / "run/metrics.jsonl"), events = event_bytes(place / "run");
  CHECK_THAT(lines, !ContainsSubstring("confusion") && ContainsSubstring("\"classes\""));
  CHECK_THAT(events, !ContainsSubstring("confusion") && ContainsSubstring("validation/classes/plain/f1"));
  CHECK_FALSE(summary["validation"].contains("confusion"));
}

TEST_CASE("scores of single classes are not logged if there are more than 20 classes", "[classification]") {
  const Workplace place;
  std::vector<std::string> labels;
  for (int i = 0; i < 21; ++i) labels.push_back("label" + std::to_string(i));
  const auto summary = train_with_labels(place, labels);
  for (const auto& text : {read_text(place / "run/metrics.jsonl"), event_bytes(place / "run"),
                           read_text(place / "run/checkpoints/last/meta.json"), summary.dump()})
    CHECK_THAT(text, !ContainsSubstring("classes/") && !ContainsSubstring("label20"));
  CHECK(csv_rows(read_text(place / "run/confusion_test.csv")).size() == 22);
}

TEST_CASE("the measure of the config chooses a classifier's best checkpoint", "[classification]") {
  const Workplace place;
  const Evaluation evaluation{.scores = {{"loss", 0.75}, {"accuracy", 0.875}, {"auc", 0.9375}}};
  const auto [metric, error, headline] = GENERATE(table<std::string, double, std::string>({
      {"loss", 0.75, "loss 0.7500, accuracy 87.50%"},
      {"accuracy", 0.125, "loss 0.7500, accuracy 87.50%"},
      {"auc", 0.0625, "loss 0.7500, accuracy 87.50%, auc 93.75%"},
  }));
  const Parts parts(place.experiment(classifier(place, {"task.selection_metric=" + metric})));
  CHECK(parts.task.measures->selection_error(evaluation) == error);
  CHECK(headline_of(parts.task, evaluation) == headline);
  if (metric == "auc")
    CHECK(parts.task.measures->selection_error({.scores = {{"loss", 0.75}, {"accuracy", 0.875}}}) == 1);
}

TEST_CASE("selection by AUC with validation texts of one class is an error before a run exists", "[classification]") {
  const Workplace place;
  auto overrides = classifier(place, {"train.steps=2", "data.validation_path='" + (place / "good.tsv").string() + "'"});
  place.folder().write("good.tsv", "text\tlabel\nmarker word1\tgood\nmarker word2\tgood\n");
  place.train("by_accuracy", overrides);
  overrides.emplace_back("task.selection_metric=auc");
  CHECK_THROWS_WITH(place.train("by_auc", overrides), Mentions("task.selection_metric auc:|2|validation"));
  CHECK_FALSE(std::filesystem::exists(place / "by_auc"));
  place.folder().write("good.tsv", "text\tlabel\nmarker word1\tgood\nword3 word2\tbad\n");
  place.train("by_auc", overrides);
}

TEST_CASE("with the calibrating shift the mean probability of every class equals its mean target", "[classification]") {
  const std::int64_t classes = GENERATE(2, 5);
  torch::manual_seed(4);
  const auto logits_bv = 3 * torch::randn({400, classes}, torch::kDouble) + torch::arange(classes);
  const auto targets_bv = torch::softmax(torch::randn({400, classes}, torch::kDouble), 1);
  const auto weights_b = torch::rand(400, torch::kDouble) + 0.1;
  const auto shift_v = calibrating_shift(logits_bv, targets_bv, weights_b);
  const auto gradient_v = ((torch::softmax(logits_bv + shift_v, 1) - targets_bv) * weights_b.unsqueeze(1)).mean(0);
  CHECK(gradient_v.abs().max().item<double>() < 1e-6);
  const auto of_one = calibrating_shift(logits_bv, torch::one_hot(torch::zeros(400, torch::kLong), classes), weights_b);
  CHECK(of_one.isfinite().all().item<bool>());
}

TEST_CASE("the bias of a recalibrated classifier minimises its loss without noise", "[classification]") {
  const Workplace place;
  place.train("run", classifier(place, {"train.steps=30", "train.eval_interval=30", "task.head.recalibrate=true",
                                        "model.embedding.dropout=0.5", "model.dropout=0.3", "task.token_removal=0.4",
                                        "task.class_weights=balanced", "task.label_smoothing=0.1",
                                        "train.batch_size=64", "data.tokenizer.kind=word"}));
  auto run = load_run(place / "run", "last", "cpu");
  CHECK(run.model->named_buffers()["logit_shift"].abs().max().item<double>() > 1e-3);
  const auto task = make_task(run.experiment.config, /*offline=*/true, std::move(run.codec));
  double sum = 0;
  // Fewer than 4,096 texts, so each counts once.
  for (std::int64_t i = 0; i < task.batches->evaluation_batches(Split::train); ++i) {
    const auto batch = task.batches->evaluation_batch(Split::train, i, torch::kCPU);
    task.objective(run.model->evaluate(batch), batch).backward();
    sum += batch.weight.item<double>();
  }
  CHECK(sum > 900);
  const auto bias_v = run.model->named_parameters()["head.bias"];
  CHECK(bias_v.grad().abs().max().item<double>() / sum < 1e-5);
}

TEST_CASE("a classifier is recalibrated on 4,096 different texts, or on all if there are fewer", "[classification]") {
  const Workplace place;
  Parts parts(place.experiment(classifier(
      place, {"task.head.recalibrate=true", "train.batch_size=100", "data.tokenizer.kind=word", "train.seed=7"})));
  auto& model = dynamic_cast<Classifier&>(*parts.model);
  const std::int64_t count = GENERATE(1, 99, 100, 1234, 4096, 10000);
  std::int64_t seen = 0;
  const auto texts = [&](std::int64_t first, std::int64_t rows) {
    CHECK(first == seen);
    CHECK(rows <= 100);
    seen += rows;
    return parts.task.batches->evaluation_batch(Split::train, 0, torch::kCPU);
  };
  recalibrate(model, texts, count, parts.experiment.config, {}, torch::kCPU);
  CHECK(seen == std::min<std::int64_t>(4096, count));
}

}  // namespace metaformer::test_classification_task
