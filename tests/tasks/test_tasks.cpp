// Sorting and classification as whole trainings.

#include <set>

#include "base/error.h"
#include "data/datasets/sort_dataset.h"
#include "infer/evaluation.h"
#include "infer/prediction.h"
#include "infer/sampling.h"
#include "model/transformer.h"
#include "support/workplace.h"
#include "tasks/make_task.h"
#include "tasks/recalibration.h"

namespace metaformer {

namespace {

std::vector<std::string> sorter(std::vector<std::string> more = {}) {
  const std::vector<std::string> small = {"task=sort",          "data.path=null",        "data.sort.length=4",
                                          "data.sort.digits=4", "train.batch_size=32",   "model.width=32",
                                          "model.heads=4",      "train.eval_interval=50"};
  more.insert(more.begin(), small.begin(), small.end());
  return more;
}

// A text is "good" when the word marker stands anywhere in it. Lengths differ, so batches are padded.
std::string marked_table(int rows) {
  const Rng rng(3, RandomPurpose::batches);
  std::string table = "text\tlabel\n";
  std::uint64_t drawn = 0;
  for (int i = 0; i < rows; ++i) {
    const auto length = 1 + rng.below(drawn++, 12), place = rng.below(drawn++, length);
    const bool good = rng.below(drawn++, 2) == 0;
    for (std::uint64_t word = 0; word < length; ++word)
      table += good && word == place ? "marker " : "word" + std::to_string(rng.below(drawn++, 40)) + " ";
    table += good ? "\tgood\n" : "\tbad\n";
  }
  return table;
}

std::vector<std::string> classifier(const Workplace& place, std::vector<std::string> more = {}) {
  place.folder().write("table.tsv", marked_table(1500));
  const std::vector<std::string> small = {
      "task=classification",          "data.path='" + (place / "table.tsv").string() + "'",
      "data.validation_fraction=0.3", "model.layers=1",
      "train.batch_size=16",          "train.eval_interval=50"};
  more.insert(more.begin(), small.begin(), small.end());
  return more;
}

std::string sorted_by(const LoadedRun& run, const std::string& list) {
  TextGenerator generator(*run.model, run.codec.tokenizer->encode(list), {.temperature = 0}, torch::kCPU);
  std::vector<std::int32_t> tokens;
  for (int i = 0; i < 4; ++i) tokens.push_back(generator.next()[0]);
  return run.codec.tokenizer->decode(tokens);
}

}  // namespace

TEST_CASE("a sorter learns to sort lists it never saw, and its checkpoint does", "[sort]") {
  const Workplace place;
  const auto summary =
      place.train("run", sorter({"train.steps=500", "train.learning_rate=3e-3", "train.min_learning_rate=1e-4",
                                 "model.mixer.kind=scaled_dot_product"}));
  CHECK(summary["validation"]["exact_match"] == 1.0);
  CHECK(summary["validation"]["accuracy"] == 1.0);
  auto run = load_run(place / "run", "best", "cpu");
  CHECK(sorted_by(run, "3 1 0 1") == "0 1 1 3");
  CHECK(sorted_by(run, "2 2 0 3") == "0 2 2 3");
}

TEST_CASE("exact match is the share of lists that greedy generation sorts", "[sort]") {
  const Workplace place;
  place.train("run", sorter({"train.steps=25", "train.learning_rate=3e-3"}));  // half learned
  auto run = load_run(place / "run", "last", "cpu");
  const auto task = make_task(run.experiment.config, true);
  const auto metrics = evaluate_split(*run.model, *task, Split::test, Precision::fp32, torch::kCPU);
  const SortDataset dataset(run.experiment.config.data.sort);
  double sorted = 0;
  const auto lists = dataset.list_count(Split::test);
  for (std::int64_t i = 0; i < lists; ++i) {
    const auto batch = dataset.rows(Split::test, i, 1);
    std::vector<std::int32_t> list(batch.ids.begin(), batch.ids.begin() + 4), right = list;
    std::sort(right.begin(), right.end());
    const auto& tokenizer = *run.codec.tokenizer;
    sorted += sorted_by(run, tokenizer.decode(list)) == tokenizer.decode(right);
  }
  CHECK(metrics["lists"] == lists);
  CHECK(metrics["exact_match"].get<double>() == Approx(sorted / static_cast<double>(lists)));
  CHECK(metrics["exact_match"].get<double>() > 0.02);
  CHECK(metrics["exact_match"].get<double>() < 0.98);
}

TEST_CASE("one word anywhere in a padded text decides, with every mixer and head", "[classification]") {
  const Workplace place;
  const std::string mixer = GENERATE("scaled_dot_product", "metric", "average_pooling", "identity");
  // One token's logits outweigh those of all others only after long training where no token sees another.
  const bool attends = mixer == "scaled_dot_product" || mixer == "metric";
  const std::string head = attends ? "per_token_mean" : "mean_pooled";
  const auto summary =
      place.train("run", classifier(place, {"model.mixer.kind=" + mixer, "model.head=" + head, "model.width=32",
                                            "train.steps=250", "train.learning_rate=3e-3"}));
  CHECK(summary["validation"]["accuracy"] == 1.0);
  const auto& classes = summary["validation"]["classes"];
  CHECK(classes["good"]["texts"] == classes["good"]["correct"]);
  CHECK(classes["bad"]["texts"] == classes["bad"]["predicted"]);
  const auto texts = classes["good"]["texts"].get<int>() + classes["bad"]["texts"].get<int>();
  CHECK(texts == summary["validation"]["texts"]);
  CHECK(texts > 300);
}

TEST_CASE("a class token sees every word through attention", "[classification]") {
  const Workplace place;
  const auto summary =
      place.train("run", classifier(place, {"model.head=first_token", "train.steps=200", "train.learning_rate=1e-2"}));
  CHECK(summary["validation"]["accuracy"] == 1.0);
}

TEST_CASE("predictions are those of a text alone, by the labels of the checkpoint", "[classification]") {
  const Workplace place;
  place.train("run", classifier(place, {"train.steps=100", "train.learning_rate=1e-2"}));
  auto run = load_run(place / "run", "best", "cpu");
  CHECK(run.codec.labels == std::vector<std::string>{"bad", "good"});
  std::vector<std::vector<std::int32_t>> texts;
  for (const auto* text : {"word1 word2", "word3 marker word4 word5 never-seen", "word7"})
    texts.push_back(run.codec.tokenizer->encode(text));
  const auto together = predict(*run.model, texts, Precision::fp32, torch::kCPU);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    CHECK(together[i].label == (i == 1 ? 1 : 0));
    CHECK(together[i].probabilities[0] + together[i].probabilities[1] == Approx(1));
    const auto alone = predict(*run.model, {texts[i]}, Precision::fp32, torch::kCPU).front();
    CHECK(alone.probabilities[0] == Approx(together[i].probabilities[0]).margin(1e-6));
  }
}

TEST_CASE("classifiers and sorters resume to the byte", "[classification][sort]") {
  const Workplace place;
  const bool sorts = GENERATE(true, false);
  const auto with = [&](std::vector<std::string> more) {
    more.insert(more.end(),
                {"train.schedule=constant", "model.dropout=0.1", "train.accumulate=4", "train.batch_size=32"});
    if (sorts) return sorter(more);
    more.insert(more.end(), {"model.embedding_scale=log_count_ratio", "model.ngram_embedding={order: 2, buckets: 64}",
                             "model.recalibrate=true", "train.eval_interval=2"});
    return classifier(place, more);
  };
  // Of about 1,050 texts: the epoch ends in step 9, after the cut.
  place.train("whole", with({"train.steps=12"}));
  place.train("cut", with({"train.steps=5"}));
  place.train("cut", with({"train.steps=12"}), true);
  CHECK(model_bytes(place / "whole") == model_bytes(place / "cut"));
}

TEST_CASE("embeddings are scaled by how unequally the classes' texts have them", "[classification]") {
  const Workplace place;
  const std::int64_t classes = GENERATE(2, 3), buckets = 64;
  const std::string head = GENERATE("mean_pooled", "first_token");
  // A word in every text, one of a class alone, one twice in a text; the longest text is cut to 4 tokens.
  std::vector<std::pair<std::string, int>> texts = {{"the red red", 0}, {"the red blue", 0},  {"the blue grey", 1},
                                                    {"the grey", 1},    {"the grey blue", 1}, {"the a b c d e", 0}};
  if (classes == 3) texts.insert(texts.end(), {{"the pink", 2}, {"the pink grey", 2}});
  std::string table = "text\tlabel\n";
  for (const auto& [text, label] : texts) table += text + "\tclass" + std::to_string(label) + "\n";
  place.folder().write("train.tsv", table);
  place.folder().write("validation.tsv", "text\tlabel\nthe green\tclass0\nthe blue red\tclass1\n");
  place.train("run", {"task=classification", "data.path='" + (place / "train.tsv").string() + "'",
                      "data.validation_path='" + (place / "validation.tsv").string() + "'", "data.tokenizer.kind=word",
                      "model.context=4", "model.head=" + head, "model.embedding_scale=log_count_ratio",
                      "model.ngram_embedding={order: 2, buckets: 64}", "train.steps=1", "train.token_removal=0.5"});
  const auto run = load_run(place / "run", "last", "cpu");
  const auto buffers = run.model->named_buffers();

  // A class token, whose id is the vocabulary, stands before the text, and so before the first pair.
  const auto class_token = static_cast<std::int32_t>(run.codec.tokenizer->vocabulary_size());
  std::vector<std::set<std::int64_t>> features;  // token ids, and buckets as negative numbers
  std::set<std::int64_t> all;
  for (const auto& [text, label] : texts) {
    auto ids = run.codec.tokenizer->encode(text);
    ids.resize(std::min<std::size_t>(ids.size(), 4));
    if (head == "first_token") ids.insert(ids.begin(), class_token);
    auto& of_text = features.emplace_back(ids.begin(), ids.end());
    const auto ids_bc = torch::tensor(std::vector<std::int64_t>(ids.begin(), ids.end())).unsqueeze(0);
    const auto buckets_bc = ngram_buckets(ids_bc, 2, buckets);
    for (std::int64_t i = 0; i < buckets_bc.size(1); ++i) of_text.insert(-1 - buckets_bc[0][i].item<std::int64_t>());
    all.insert(of_text.begin(), of_text.end());
  }
  const auto ratio = [&](std::int64_t feature, int label) {
    double with[2] = {}, sum[2] = {};  // of the class, of the others
    for (const auto each : all) {
      for (auto side : {0, 1}) {
        double count = 3;
        for (std::size_t i = 0; i < texts.size(); ++i)
          count += (texts[i].second == label) == (side == 0) && features[i].contains(each);
        sum[side] += count;
        if (each == feature) with[side] = count;
      }
    }
    return std::log(with[0] / sum[0] / (with[1] / sum[1]));
  };
  const auto check = [&](const torch::Tensor& scale_v1, std::int64_t sign) {
    for (std::int64_t i = 0; i < scale_v1.size(0); ++i) {
      const auto feature = sign > 0 ? i : -1 - i;
      double expected = feature == class_token ? 1 : 0;  // whose embedding is not scaled
      for (int label = 0; all.contains(feature) && feature != class_token && label < classes; ++label)
        expected = std::max(expected, std::abs(ratio(feature, label)));
      INFO(feature);
      CHECK(scale_v1[i].item<double>() == Approx(expected).margin(1e-6));
    }
  };
  check(buffers["transformer.token_scale"], 1);
  check(buffers["transformer.ngram_scale"], -1);
}

TEST_CASE("the calibrating shift gives every class its share", "[classification]") {
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

TEST_CASE("a recalibrated classifier is at the minimum of its loss in the bias, without noise", "[classification]") {
  const Workplace place;
  const auto changes = classifier(
      place, {"train.steps=30", "train.eval_interval=30", "model.recalibrate=true", "model.embedding_dropout=0.5",
              "model.dropout=0.3", "train.token_removal=0.4", "train.class_weights=balanced",
              "train.label_smoothing=0.1", "train.batch_size=64", "data.tokenizer.kind=word"});
  place.train("run", changes);
  auto run = load_run(place / "run", "last", "cpu");
  CHECK(run.model->named_buffers()["logit_shift"].abs().max().item<double>() > 1e-3);
  const auto config = run.experiment.config;
  const auto task = make_task(config, /*offline=*/true, std::move(run.codec));
  const auto bias_v = run.model->named_parameters()["head.bias"];
  double sum = 0;
  for (std::int64_t i = 0; i < 64; ++i) {
    const auto loss = task->loss(*run.model, task->random_batch(Split::train, i, torch::kCPU));
    loss.sum.backward();
    sum += loss.weight;
  }
  CHECK(bias_v.grad().abs().max().item<double>() / sum < 1e-5);
}

TEST_CASE("a run goes on with its own numbering or not at all", "[classification]") {
  const Workplace place;
  place.train("run", classifier(place, {"train.steps=5"}));
  const auto overrides = classifier(place, {"train.steps=9"});
  auto table = read_text(place / "table.tsv");
  for (auto at = table.find("\tgood\n"); at != std::string::npos; at = table.find("\tgood\n", at + 1))
    table.replace(at, 6, "\tevil\n");
  place.folder().write("table.tsv", table);
  CHECK_THROWS_WITH(place.train("run", overrides, true), ContainsSubstring("the label 'evil' is not among"));
  place.folder().write("table.tsv", marked_table(1400));
  CHECK_THROWS_WITH(place.train("run", overrides, true), ContainsSubstring("the data are not those it was trained on"));
  place.folder().write("table.tsv", marked_table(1500));
  CHECK(place.train("run", overrides, true)["steps"] == 9);
}

TEST_CASE("random estimates of every task are repeatable and near the whole split", "[sort][classification]") {
  const Workplace place;
  const bool sorts = GENERATE(true, false);
  Parts parts(place.experiment(sorts ? sorter() : classifier(place)));
  const auto estimate = [&] {
    return estimate_split(*parts.model, *parts.task, Split::validation, 40, Precision::fp32, torch::kCPU);
  };
  const auto whole = evaluate_split(*parts.model, *parts.task, Split::validation, Precision::fp32, torch::kCPU);
  CHECK(estimate() == estimate());
  CHECK(estimate()["loss"].get<double>() == Approx(whole["loss"].get<double>()).epsilon(0.05));
  CHECK(estimate()["loss"] != whole["loss"]);
}

TEST_CASE("a classifier that diverged has a loss that says so, and no ranking", "[classification][divergence]") {
  const Workplace place;
  Parts parts(place.experiment(classifier(place)));
  parts.parameters->values().fill_(std::numeric_limits<float>::quiet_NaN());
  const auto metrics = evaluate_split(*parts.model, *parts.task, Split::validation, Precision::fp32, torch::kCPU);
  CHECK(std::isnan(metrics["loss"].get<double>()));
  CHECK_FALSE(metrics.contains("auc"));
  CHECK_FALSE(metrics.contains("calibration_error"));
}

TEST_CASE("class weights and smoothing change the loss that is trained, not the one that is reported",
          "[classification]") {
  const Workplace place;
  Parts plain(place.experiment(classifier(place)));
  Parts changed(place.experiment(classifier(place, {"train.label_smoothing=0.2", "train.class_weights=balanced"})));
  const torch::NoGradGuard no_grad;
  const auto batch = plain.task->training_batch(0, 0, torch::kCPU);
  const auto logits = plain.model->forward(batch).to(torch::kDouble);
  // By hand: a class weighs texts / (classes texts of it); smoothing gives every class 0.2 / 2 of the target.
  double good = 0, all = 0;
  for (std::int64_t i = 0; i < plain.task->evaluation_batches(Split::train); ++i) {
    const auto labels = plain.task->evaluation_batch(Split::train, i, torch::kCPU).labels_b;
    good += labels.sum().item<double>();
    all += static_cast<double>(labels.numel());
  }
  const auto weights = torch::tensor({all / (2 * (all - good)), all / (2 * good)}, torch::kDouble);
  const auto losses_bv = -torch::log_softmax(logits, 1);
  const auto exact_b = losses_bv.gather(1, batch.labels_b.unsqueeze(1)).squeeze(1);
  const auto weighted = 0.8 * (weights.index({batch.labels_b}) * exact_b).sum() + 0.1 * (losses_bv * weights).sum();
  CHECK(plain.task->loss(*plain.model, batch).sum.item<double>() == Approx(exact_b.sum().item<double>()));
  CHECK(changed.task->loss(*changed.model, batch).sum.item<double>() == Approx(weighted.item<double>()));
  const auto report = [&](Parts& parts) {
    return evaluate_split(*parts.model, *parts.task, Split::validation, Precision::fp32, torch::kCPU);
  };
  CHECK(report(changed) == report(plain));
}

TEST_CASE("the test split is read once, by the checkpoint that validation chose", "[classification]") {
  const Workplace place;
  place.folder().write("test.tsv", marked_table(200));
  const auto summary =
      place.train("run", classifier(place, {"train.steps=150", "train.baselines=false",
                                            "data.test_path='" + (place / "test.tsv").string() + "'"}));
  const auto run = load_run(place / "run", "best", "cpu");
  const auto task = make_task(run.experiment.config, true, std::move(load_run(place / "run", "best", "cpu").codec));
  CHECK(summary["test"] == evaluate_split(*run.model, *task, Split::test, Precision::fp32, torch::kCPU));
  CHECK(run.progress.step == summary["best_step"].get<std::int64_t>());
  CHECK(summary["best_val_error"].get<double>() == 1 - run.progress.validation["accuracy"].get<double>());
  std::istringstream lines(read_text(place / "run" / "metrics.jsonl"));
  int tests = 0;
  for (std::string line; std::getline(lines, line);) tests += nlohmann::json::parse(line)["split"] == "test";
  CHECK(tests == 1);
}

TEST_CASE("the metric that chooses a classifier's best checkpoint is the config's", "[classification]") {
  const Workplace place;
  const auto error = [&](const std::string& metric, const nlohmann::ordered_json& metrics) {
    Parts parts(place.experiment(classifier(place, {"train.selection_metric=" + metric})));
    return parts.task->selection_error(metrics);
  };
  const nlohmann::ordered_json metrics = {{"loss", 0.75}, {"accuracy", 0.875}, {"auc", 0.9375}};
  CHECK(error("loss", metrics) == 0.75);
  CHECK(error("accuracy", metrics) == 0.125);
  CHECK(error("auc", metrics) == 0.0625);
  CHECK(error("auc", {{"loss", 0.75}, {"accuracy", 0.875}}) == 1);  // texts of one class have none
  Parts by_auc(place.experiment(classifier(place, {"train.selection_metric=auc"})));
  CHECK(headline_of(*by_auc.task, metrics) == "loss 0.7500, accuracy 87.50%, auc 93.75%");
  CHECK(headline_of(*Parts(place.experiment(classifier(place))).task, metrics) == "loss 0.7500, accuracy 87.50%");
  CHECK_THROWS_WITH(place.experiment({"train.selection_metric=auc"}),
                    ContainsSubstring("train.selection_metric: has no meaning for task language_model"));
}

TEST_CASE("AUC cannot choose by validation texts of one class, which is said before there is a run",
          "[classification]") {
  const Workplace place;
  auto overrides = classifier(place, {"train.steps=2", "data.validation_path='" + (place / "good.tsv").string() + "'"});
  place.folder().write("good.tsv", "text\tlabel\nmarker word1\tgood\nmarker word2\tgood\n");
  place.train("by_accuracy", overrides);
  overrides.emplace_back("train.selection_metric=auc");
  CHECK_THROWS_WITH(place.train("by_auc", overrides),
                    ContainsSubstring("train.selection_metric auc: all 2 texts of the validation split have the label "
                                      "'good'"));
  CHECK_FALSE(std::filesystem::exists(place / "by_auc"));
  place.folder().write("good.tsv", "text\tlabel\nmarker word1\tgood\nword3 word2\tbad\n");
  place.train("by_auc", overrides);
}

TEST_CASE("accumulated ragged batches give the gradient of the big batch", "[classification]") {
  const Workplace place;
  Parts big(place.experiment(classifier(place, {"train.batch_size=12", "train.clip=0"})));
  Parts small(place.experiment(classifier(place, {"train.batch_size=3", "train.accumulate=4", "train.clip=0"})));
  for (std::int64_t step = 0; step < 3; ++step) {
    const auto one = big.step->run(step, 1e-3), four = small.step->run(step, 1e-3);
    CHECK(four.loss.item<double>() == Approx(one.loss.item<double>()).epsilon(1e-5));
    CHECK(torch::allclose(small.parameters->gradients(), big.parameters->gradients(), 1e-4, 1e-7));
  }
}

TEST_CASE("the first batch of every task can be learned by heart", "[training]") {
  const Workplace place;
  const std::string task = GENERATE("language_model", "sort", "classification");
  std::vector<std::string> overrides = {"train.steps=400",       "train.eval_interval=200", "train.learning_rate=1e-2",
                                        "train.warmup_steps=10", "train.batch_size=2",      "train.overfit_batch=true"};
  if (task == "sort") overrides = sorter(overrides);
  if (task == "classification") overrides = classifier(place, overrides);
  const auto summary = place.train("run", overrides);
  CHECK(summary["train_loss"].get<double>() < 0.02);
  CHECK(summary["val_loss"].get<double>() == Approx(summary["train_loss"].get<double>()).margin(0.01));
}

}  // namespace metaformer
