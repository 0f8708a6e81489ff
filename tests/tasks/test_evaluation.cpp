// Evaluations: scores of whole splits and of parts, and logits of slices, which threads share.

#include <cmath>
#include <numeric>

#include "base/files.h"
#include "ops/autocast.h"
#include "support/threads.h"
#include "tasks/batches.h"
#include "tasks/classification_task.h"
#include "tasks/evaluation.h"
#include "tasks/task_examples.h"

namespace metaformer::test_evaluation {

namespace {

// A language model with a validation split of several evaluation batches.
Overrides with_long_validation(const Workplace& place, Overrides more = {}) {
  std::string text;
  while (text.size() < 60000) text += learnable_text();
  place.folder().write("validation.txt", text);
  more.push_back("data.validation_path='" + (place / "validation.txt").string() + "'");
  return more;
}

Overrides packed_documents(const Workplace& place) {
  std::string lines;
  for (int i = 0; i < 1500; ++i)
    lines += R"({"text": ")" + learnable_text().substr(0, static_cast<std::size_t>(5 + i % 37)) + "\"}\n";
  place.folder().write("documents.jsonl", lines);
  return {"data.path='" + (place / "documents.jsonl").string() + "'", "data.packing=spfhp",
          "data.validation_fraction=0.6"};
}

Overrides many_pairs(const Workplace& place) {
  std::string table = "source\ttarget\n";
  for (int i = 0; i < 3000; ++i)
    table += "w" + std::to_string(i * 7 % 31) + (i % 3 ? " and\tv" : "\tv") + std::to_string(i * 11 % 23) + "\n";
  place.folder().write("pairs.tsv", table);
  return {"task=sequence_to_sequence",  "data.path='" + (place / "pairs.tsv").string() + "'",
          "data.tokenizer=word",        "data.validation_fraction=0.5",
          "model.kind=encoder_decoder", "model.context=8"};
}

// 90 rows of up to 64 tokens, in several slices.
Batch random_batch(bool is_ragged) {
  torch::manual_seed(3);
  constexpr std::int64_t rows = 90, length = 64;
  Batch batch{.ids_bc = torch::randint(4, {rows, length}, torch::kLong)};
  if (!is_ragged) return batch;
  const auto length_b1 = torch::arange(rows).unsqueeze(1) % 31 + 1;  // every row has padding
  batch.segments_bc = torch::where(torch::arange(length) < length_b1, 0, -1);
  batch.labels_l = torch::zeros(rows, torch::kLong);
  return batch;
}

// Runs the test case with each of the first `count` examples.
Overrides any_example(const Workplace& place, int count) {
  const int number = GENERATE_COPY(range(0, count));
  UNSCOPED_INFO("example " << number);
  if (number == 0) return with_long_validation(place);
  if (number == 1) return with_long_validation(place, {"model.memory=8", "model.positions=transformer_xl"});
  if (number == 2) return with_long_validation(place, {"task=masked_language_model"});
  if (number == 3) return classifier(place);
  if (number == 4) return many_pairs(place);
  if (number == 5) return with_long_validation(place, {"model=gru", "model.carry_state=true"});
  return number == 6 ? packed_documents(place) : sorter({"task.length=6"});
}

Experiment experiment_of(const Workplace& place, bool classifies) {
  const std::vector<std::string> changes = {"model.context=64", "model.positions=rotary"};
  return place.experiment(classifies ? classifier(place, changes) : changes);
}

}  // namespace

// A validation split with unknown words, capital letters and several kinds of white space.
Overrides text_of_words(const Workplace& place, std::string& held_out) {
  std::string text;
  for (int i = 0; text.size() < 6000; ++i) text += "Größe " + std::to_string(i * i) + " The fox\tTHE End.\n";
  held_out = "Größe! The quick FOX\u00a0 ends 12 things.\n" + text.substr(0, 2001);
  place.folder().write("text.txt", text);
  place.folder().write("held_out.txt", held_out);
  return {"data.path='" + (place / "text.txt").string() + "'",
          "data.validation_path='" + (place / "held_out.txt").string() + "'", "data.cache=false"};
}

TEST_CASE("bits per byte are the bits of the targets divided by their bytes, with every tokenizer", "[training]") {
  const Workplace place;
  std::string held_out;
  const std::string tokenizer =
      GENERATE("byte", "character", "{kind: unigram, vocabulary: 300}", "{kind: bpe, vocabulary: 300}",
               "{kind: unigram, vocabulary: 300, lowercase: true}", "{kind: word, lowercase: false, min_count: 1}",
               "{kind: word, min_count: 2}");
  INFO(tokenizer);
  Parts parts(place.experiment(joined(text_of_words(place, held_out), {"data.tokenizer=" + tokenizer})));
  const auto scores = evaluate_split({parts.predictor(), parts.task}, Split::validation);
  const auto& codec = *parts.task.codec->tokenizer;
  const auto ids = codec.encode(held_out);
  CHECK(scores.at("tokens") == std::ssize(ids) - 1);
  const auto bytes = codec.token_bytes(held_out);
  CHECK(std::accumulate(bytes.begin(), bytes.end(), 0) == std::ssize(held_out));
  const double bits = scores.at("loss") / std::log(2.0) * scores.at("tokens"),
               per_byte = bits / static_cast<double>(std::ssize(held_out) - bytes[0]);
  CHECK(scores.at("bits_per_byte") == Approx(per_byte).epsilon(1e-12));
  const auto lossless = scores.find("lossless_bits_per_byte");
  CHECK(lossless.has_value() == tokenizer.starts_with("{kind: word"));
  if (lossless) CHECK(*lossless > per_byte);
  // For a part of the split only the bytes of its targets count.
  const auto batch = parts.task.batches->evaluation_batch(Split::validation, 0, torch::kCPU);
  const auto context = batch.ids_bc.size(1);
  CHECK(beginning_of(batch, 1).target_bytes_bc.sum().item<std::int64_t>() ==
        std::accumulate(bytes.begin() + 1, bytes.begin() + 1 + context, 0));
}

TEST_CASE("an evaluation is the mean over single predictions, with any batches and number of threads",
          "[training][masking]") {
  const Workplace place;
  const auto [is_masked, is_packed] = GENERATE(table<bool, bool>({{false, false}, {true, false}, {true, true}}));
  Overrides overrides;
  if (is_masked) overrides = {"task=masked_language_model", "model.context=64"};
  if (is_packed)
    overrides = joined(overrides, {"data.path=" + documents(place), "data.packing=spfhp", "data.tokenizer=byte"});
  Parts parts(place.experiment(overrides));
  const auto report = [&](Parts& of) { return evaluate_split({of.predictor(), of.task}, Split::validation); };
  const auto metrics = report(parts);
  double sum = 0, correct = 0, count = 0;
  for (std::int64_t i = 0; i < parts.task.batches->evaluation_batches(Split::validation); ++i) {
    const auto batch = parts.task.batches->evaluation_batch(Split::validation, i, torch::kCPU);
    for (std::int64_t row = 0; row < batch.ids_bc.size(0); ++row) {
      auto one = rows_of(batch, row, 1);
      one.places_t = torch::Tensor();
      const auto logits_cv = parts.model->evaluate(one)[0].to(torch::kDouble);
      for (std::int64_t c = 0; c < logits_cv.size(0); ++c) {
        const auto target = one.targets_bc[0][c].item<std::int64_t>();
        if (target < 0) continue;
        sum -= torch::log_softmax(logits_cv[c], 0)[target].item<double>();
        correct += logits_cv[c].argmax().item<std::int64_t>() == target;
        ++count;
      }
    }
  }
  CHECK(metrics.at(is_masked ? "targets" : "tokens") == count);
  CHECK(metrics.at("loss") == Approx(sum / count).epsilon(1e-6));
  CHECK(metrics.at("accuracy") == Approx(correct / count));
  CHECK(metrics.at("perplexity") == Approx(std::exp(sum / count)).epsilon(1e-6));
  if (overrides.empty()) CHECK(metrics.at("bits_per_character") == Approx(sum / count / std::log(2.0)).epsilon(1e-6));
  Parts other(place.experiment(joined(overrides, {"train.batch_size=5", "train.seed=99"})));
  other.parameters->values().copy_(parts.parameters->values());
  CHECK(report(other) == metrics);
  for (const int threads : {1, 2, 3}) {
    const Threads scope(threads);
    CHECK(report(parts) == metrics);
  }
}

TEST_CASE("random estimates of sorters and classifiers are repeatable and near the whole split",
          "[sort][classification]") {
  const Workplace place;
  const bool sorts = GENERATE(true, false);
  Parts parts(place.experiment(sorts ? sorter() : classifier(place)));
  const auto estimate = [&] {
    return report_of(parts.task, Split::validation,
                     score_random_batches({parts.predictor(), parts.task}, Split::validation, 40));
  };
  const auto whole = evaluate_split({parts.predictor(), parts.task}, Split::validation);
  CHECK(estimate() == estimate());
  CHECK(estimate().at("loss") == Approx(whole.at("loss")).epsilon(0.05));
  CHECK(estimate().at("loss") != whole.at("loss"));
}

TEST_CASE("the numbers of tokens of evaluation batches are those in their rows", "[training]") {
  const Workplace place;
  const auto experiment = place.experiment(any_example(place, 8));
  const auto task = make_task(experiment.config, true);
  for (std::int64_t i = 0; i < task.batches->evaluation_batches(Split::validation); ++i) {
    const auto batch = task.batches->evaluation_batch(Split::validation, i, torch::kCPU);
    const bool has_padding = batch.segments_bc.defined();
    auto tokens = has_padding ? (batch.segments_bc >= 0).sum().item<std::int64_t>() : batch.ids_bc.numel();
    if (!has_padding && is<LanguageModelConfig>(experiment.config.task))
      tokens = (batch.targets_bc >= 0).sum().item<std::int64_t>();
    if (batch.source_ids_bs.defined())
      tokens += batch.source_segments_bs.defined() ? (batch.source_segments_bs >= 0).sum().item<std::int64_t>()
                                                   : batch.source_ids_bs.numel();
    CHECK(task.batches->evaluation_tokens(Split::validation, i) == tokens);
  }
}

TEST_CASE("a part of a split has at most the requested number of tokens, evenly spread", "[training]") {
  const Workplace place;
  const auto task = make_task(place.experiment(with_long_validation(place)).config, true);
  const auto all = task.batches->evaluation_batches(Split::validation);
  REQUIRE(all == 8);
  const auto part = [&](std::optional<std::int64_t> tokens, bool in_order = false) {
    return part_of_split(*task.batches, Split::validation, tokens, in_order);
  };
  CHECK(part(std::nullopt).is_whole());
  CHECK(std::ssize(part(std::nullopt).batches) == all);
  const auto whole = part(std::nullopt).split_tokens;
  CHECK(part(whole).is_whole());
  CHECK_FALSE(part(whole - 1).is_whole());
  for (const std::int64_t tokens : {1L, 15L, 16L, 8191L, 8192L, 20000L, 40000L, 56000L}) {
    const auto chosen = part(tokens);
    INFO(tokens);
    CHECK(chosen.tokens <= std::max<std::int64_t>(tokens, 16));  // at least a row
    CHECK(chosen.tokens + 8192 > std::min(tokens, whole));
    CHECK(chosen.split_tokens == whole);
  }
  CHECK(part(4 * 8192).batches == std::vector<std::int64_t>{0, 2, 4, 6});
  CHECK(part(4 * 8192, true).batches == std::vector<std::int64_t>{0, 1, 2, 3});
  CHECK(part(100).rows == 6);
}

TEST_CASE("the scores of a part of a split equal those of its rows", "[training]") {
  const Workplace place;
  Parts parts(place.experiment(any_example(place, 5)));
  const auto predictor = parts.predictor();
  for (const std::int64_t tokens : {700, 20000}) {
    const auto part = part_of_split(*parts.task.batches, Split::validation, tokens, predictor.remembers());
    const auto metrics =
        report_of(parts.task, Split::validation, score_part({predictor, parts.task}, Split::validation, part));
    // Row by row, except if rows continue those of the previous batch.
    double sum = 0, weight = 0;
    auto fresh = parts.predictor();
    for (const auto i : part.batches) {
      const auto batch = parts.task.batches->evaluation_batch(Split::validation, i, torch::kCPU);
      const auto rows = part.rows > 0 ? part.rows : batch.ids_bc.size(0);
      const auto step = predictor.remembers() ? rows : 1;
      for (std::int64_t row = 0; row < rows; row += step) {
        auto one = rows_of(batch, row, step);
        ScoreSums sums;
        one.weight = torch::tensor(0.0, torch::kDouble);
        parts.task.measures->score(fresh.logits(one), one, sums);
        sum += sums.item("loss");
        weight += static_cast<double>(one.labels_l.defined() ? one.labels_l.numel()
                                                             : (wanted_targets_t(one) >= 0).sum().item<std::int64_t>());
      }
    }
    CHECK(metrics.at("loss") == Approx(sum / weight).epsilon(1e-5));
  }
}

TEST_CASE("slices give the logits of the whole batch, with any number of threads", "[predictor]") {
  const Workplace place;
  const bool classifies = GENERATE(true, false);
  const auto precision = GENERATE(Precision::fp32, Precision::bf16);
  Parts parts(experiment_of(place, classifies));
  const auto batch = random_batch(classifies);
  const torch::NoGradGuard no_grad;
  const AutocastScope autocast(precision, torch::kCPU);
  const auto whole = parts.model->evaluate(batch);
  const auto logits = [&](int threads) {
    const Threads scope(threads);
    return NetworkPredictor(*parts.model).logits(batch);
  };
  const auto with_one = logits(1);
  CHECK(with_one.scalar_type() == whole.scalar_type());
  CHECK_FALSE(with_one.requires_grad());
  REQUIRE(with_one.sizes() == whole.sizes());
  const double tolerance = precision == Precision::fp32 ? 1e-5 : 2e-2;
  CHECK(torch::allclose(with_one, whole, tolerance, tolerance));
  for (const int threads : {2, 3, 5}) CHECK(torch::equal(logits(threads), with_one));
}

TEST_CASE("slices without labels give the logits of every token, and their error is thrown", "[predictor]") {
  const Workplace place;
  Parts parts(experiment_of(place, /*classifies=*/false));
  auto batch = random_batch(/*is_ragged=*/true);
  batch.labels_l = torch::Tensor();
  const torch::NoGradGuard no_grad;
  const auto logits_bcv = NetworkPredictor(*parts.model).logits(batch), whole_bcv = parts.model->evaluate(batch);
  REQUIRE(logits_bcv.sizes() == whole_bcv.sizes());
  const auto is_token_bc1 = (batch.segments_bc >= 0).unsqueeze(2);
  CHECK(torch::allclose(logits_bcv * is_token_bc1, whole_bcv * is_token_bc1, 1e-5, 1e-5));
  const Batch too_long{.ids_bc = torch::zeros({40, 65}, torch::kLong)};
  CHECK_THROWS_AS(NetworkPredictor(*parts.model).logits(too_long), Error);
}

}  // namespace metaformer::test_evaluation
