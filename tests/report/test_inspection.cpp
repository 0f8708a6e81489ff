// Inspections of runs that were trained for a few steps.

#include "ops/named_tensors.h"
#include "report/inspection.h"
#include "report/pictures.h"
#include "report/split_inspection.h"
#include "support/failure.h"
#include "support/mixer_options.h"
#include "tasks/evaluation.h"
#include "tasks/task_examples.h"

namespace metaformer {

namespace {

LoadedRun trained(const Workplace& place, const std::vector<std::string>& overrides) {
  place.train("run", overrides);
  return load_run(place / "run", "last", "cpu");
}

TextInspection inspect(const LoadedRun& run, const std::string& text) {
  return inspect_text(run, ids_of_text(run, text, 64));
}

}  // namespace

TEST_CASE("an inspection has the tokens, a layer for each block, and leaves the model as it was", "[inspect]") {
  const Workplace place;
  const auto run = trained(place, {"model.mixer=metric", "train.steps=3"});
  std::vector<torch::Tensor> before;
  for (const auto& [name, tensor] : named_state(*run.model)) before.push_back(tensor.clone());
  const auto inspection = inspect(run, "the quick");
  std::size_t i = 0;
  for (const auto& [name, tensor] : named_state(*run.model)) CHECK(torch::equal(tensor, before[i++]));

  CHECK(inspection.mixer == "metric");
  CHECK(inspection.causal);
  REQUIRE(inspection.tokens.size() == 9);
  CHECK(inspection.tokens[4] == "q");
  CHECK(static_cast<std::int64_t>(inspection.vocabulary.size()) == run.codec.tokenizer->vocabulary_size());
  REQUIRE(inspection.layers.size() == 2);
  for (const auto& layer : inspection.layers) {
    CHECK(layer.attention_nce.sizes() == torch::IntArrayRef({2, 9, 9}));
    CHECK(layer.attention_nce.triu(1).abs().max().item<double>() == 0);
    CHECK(layer.forms.form_nij.sizes() == torch::IntArrayRef({2, 8, 8}));
    CHECK(layer.axioms.size() == 2);
    CHECK(layer.distance_rank_correlation.empty());
  }
  CHECK(inspection.norms.after_feed_forward.size() == 2);
}

TEST_CASE("a classifier of regions is inspected with blocks, and without has norms only", "[inspect]") {
  const Workplace place;
  const auto run = trained(place, classifier(place, {"model.embedding.region=sequence", "train.steps=2"}));
  const auto inspection = inspect(run, "word1 marker word2");
  REQUIRE(inspection.layers.size() == 1);
  CHECK(inspection.layers[0].attention_nce.sizes() == torch::IntArrayRef({2, 3, 3}));
  CHECK(inspection.layers[0].distance_nvv.isfinite().all().item<bool>());
  const Workplace other;
  const auto pooled =
      trained(other, classifier(other, {"model.embedding.region=sequence", "model.layers=0", "model.heads=4",
                                        "model.positions=none", "task.head=max_pooled", "train.steps=2"}));
  const auto without_blocks = inspect(pooled, "word1 marker word2");
  CHECK(without_blocks.layers.empty());
  CHECK(without_blocks.norms.embedding > 0);
}

TEST_CASE("mixers without scores have norms and nothing else", "[inspect]") {
  const Workplace place;
  const auto mixer = GENERATE("average_pooling", "identity", "none");
  const auto run = trained(place, {"model.mixer=" + std::string(mixer), "train.steps=2"});
  const auto inspection = inspect(run, "the quick");
  REQUIRE(inspection.layers.size() == 2);
  CHECK_FALSE(inspection.layers[0].has_scores());
  CHECK(inspection.norms.embedding > 0);
  CHECK(to_tensors(inspection).empty());
  const auto json = to_json_with_arrays(inspection);
  CHECK(json["layers"][0]["heads"].empty());
  CHECK(figures_of(inspection, "run").size() == 1);
}

TEST_CASE("the JSON with arrays has a row for each query and blanks what a causal mask hides", "[inspect]") {
  const Workplace place;
  const auto run = trained(place, {"model.mixer=quadratic", "train.steps=2"});
  const auto inspection = inspect(run, "the");
  const auto json = to_json_with_arrays(inspection, 3);
  const auto& head = json["layers"][1]["heads"][0];
  REQUIRE(head["attention"].size() == 3);
  CHECK(head["attention"][0][0] == 1.0);
  CHECK(head["attention"][0][1].is_null());
  CHECK(head["scores"][1][2].is_null());
  CHECK(head["form"].size() == 8);
  CHECK(head["input_form"].size() == 16);
  CHECK(head["distances"].size() == inspection.vocabulary.size());
  const double exact = inspection.layers[1].score_nce[0][2][1].item<double>();
  CHECK(head["scores"][2][1].get<double>() == Approx(exact).epsilon(0.005));
  CHECK(to_json(inspection)["layers"][1]["heads"][0].contains("verdict"));
  CHECK_FALSE(to_json(inspection)["layers"][1]["heads"][0].contains("attention"));
}

TEST_CASE("a sorter is inspected with a list and its sorted copy", "[inspect]") {
  const Workplace place;
  const auto run = trained(place, sorter({"train.steps=5", "model.mixer=metric"}));
  CHECK(ids_of_text(run, "3 0 2 1", 64) == std::vector<std::int32_t>{3, 0, 2, 1, 0, 1, 2});
  CHECK(failure([&] { ids_of_text(run, "3 0", 64); }).second.find("2 numbers; this model sorts 4") !=
        std::string::npos);
  const auto inspection = inspect(run, "3 0 2 1");
  REQUIRE(inspection.vocabulary.size() == 4);
  const auto& layer = inspection.layers[0];
  REQUIRE(layer.distance_rank_correlation.size() == 4);
  const auto& distance = layer.distance_nvv[1];
  const auto at = [&](int i, int j) { return distance[i][j].item<double>(); };
  CHECK(layer.distance_rank_correlation[1] ==
        Approx(rank_correlation({at(0, 1), at(0, 2), at(0, 3), at(1, 2), at(1, 3), at(2, 3)}, {1, 2, 3, 1, 2, 1})));
}

TEST_CASE("an encoder and decoder is inspected in three parts", "[inspect]") {
  const Workplace place;
  const std::string mixer = GENERATE("scaled_dot_product", "metric", "quadratic");
  place.folder().write("pairs.tsv",
                       "source\ttarget\nthe quick brown fox\tthe fox\nthe lazy dog\ta dog\na fox\tone fox\n");
  const auto run =
      trained(place, {"task=sequence_to_sequence", "data.path='" + (place / "pairs.tsv").string() + "'",
                      "data.tokenizer.kind=word", "data.tokenizer.min_count=1",
                      "data.validation_path='" + (place / "pairs.tsv").string() + "'", "model.kind=encoder_decoder",
                      "model.layers=2", "model.heads=2", "model.mixer=identity", "model.cross_mixer=" + mixer,
                      "model.encoder.mixer=metric", "model.positions=learned", "train.steps=2"});
  const EncodedPair pair{.source = run.codec.tokenizer->encode("a fox the"),
                         .target = run.codec.tokenizer->encode("a fox")};
  const auto parts = inspect_pair(run, pair);
  REQUIRE(parts.size() == 3);
  CHECK(parts[0].tokens == std::vector<std::string>{"a", "fox", "the", "[mark]"});
  CHECK(parts[1].tokens == std::vector<std::string>{"[mark]", "a", "fox"});
  CHECK(parts[2].tokens == std::vector<std::string>{"a", "fox", "[mark]"});
  CHECK(parts[2].keys == parts[0].tokens);
  CHECK(parts[1].norms.after_cross.size() == 2);
  CHECK(parts[0].norms.after_cross.empty());
  for (const auto& layer : parts[0].layers) CHECK(layer.attention_nce.sizes() == torch::IntArrayRef({2, 4, 4}));
  for (const auto& layer : parts[1].layers) CHECK_FALSE(layer.has_scores());
  REQUIRE(parts[2].layers.size() == 2);
  for (const auto& layer : parts[2].layers) {
    CHECK(layer.attention_nce.sizes() == torch::IntArrayRef({2, 3, 4}));
    const auto sums_nc = layer.attention_nce.sum(2);
    CHECK(torch::allclose(sums_nc, torch::ones_like(sums_nc), 0, 1e-12));
    CHECK(layer.forms.form_nij.defined() == (mixer != "scaled_dot_product"));
    CHECK(layer.forms.input_form_ndd.defined());
    CHECK(layer.axioms.empty());
    CHECK_FALSE(layer.distance_nvv.defined());
  }
  CHECK(to_tensors(parts[2]).front().first == "cross.layer.0.attention");
  const auto json = to_json_with_arrays(parts[2], 3);
  CHECK(json["layers"][0]["heads"][0]["attention"][0].size() == 4);
  for (const auto& [name, figure] : figures_of(parts[2], "run"))
    CHECK((name.starts_with("cross_") && is_picture(name + ".svg")));
}

TEST_CASE("a class token stands before the text", "[inspect]") {
  const Workplace place;
  const auto run = trained(place, classifier(place, {"task.head=first_token", "train.steps=2"}));
  const auto inspection = inspect(run, "marker word1");
  CHECK_FALSE(inspection.causal);
  CHECK(inspection.tokens.front() == "[class]");
  CHECK(inspection.layers[0].attention_nce.size(2) == static_cast<std::int64_t>(inspection.tokens.size()));
}

// The sum of the losses of all targets, and the number of targets.
static std::pair<double, double> sums_by_position(const SplitInspection& inspection) {
  double loss = 0, targets = 0;
  for (const auto& entry : inspection.loss_by_position) {
    loss += entry.loss * static_cast<double>(entry.targets);
    targets += static_cast<double>(entry.targets);
  }
  return {loss, targets};
}

TEST_CASE("losses by position add up to the loss of the split", "[inspect]") {
  const Workplace place;
  auto run = trained(place, {"train.steps=5"});
  const auto task = make_task(run.experiment.config, true, std::move(run.codec));
  const auto inspection = inspect_split(run, task);
  const auto [sum, targets] = sums_by_position(inspection);
  const auto report = evaluate_split({*run.predictor, task}, Split::validation);
  CHECK(sum / targets == Approx(report["loss"].get<double>()));
  CHECK(targets == report["tokens"].get<double>());
  REQUIRE(inspection.loss_by_context.back().tokens == 16);
  // Every context starts at position 0: with one token all targets are predicted as at the first position.
  CHECK(inspection.loss_by_context.front().tokens == 1);
  CHECK(inspection.context_targets > 0);
  CHECK(inspection.effective_context.has_value());
  CHECK(figures_of(inspection, "run").size() == 3);
}

TEST_CASE("with memory losses by position are those of the text in order, and no context is tried alone", "[inspect]") {
  const Workplace place;
  auto run = trained(place, {"model.memory=16", "model.positions=transformer_xl", "train.steps=3"});
  CHECK(inspect(run, "to be or not").layers.size() ==
        static_cast<std::size_t>(transformer(run.experiment.config).layers));
  const auto task = make_task(run.experiment.config, true, std::move(run.codec));
  const auto found = inspect_split(run, task);
  const auto [loss, targets] = sums_by_position(found);
  const auto whole = evaluate_split({*run.predictor, task}, Split::validation);
  CHECK(loss / targets == Approx(whole.at("loss").get<double>()));
  CHECK(targets == whole.at("tokens").get<double>());
  CHECK(found.loss_by_context.empty());
  CHECK(found.gradients.mixer.size() == static_cast<std::size_t>(transformer(run.experiment.config).layers));
}

TEST_CASE("hidden tokens and packed documents have losses by position, too, and no context is tried alone",
          "[inspect][masking][packing]") {
  const Workplace place;
  std::string lines;
  for (int i = 1; i < 150; ++i)
    lines += R"({"text": ")" + std::string(static_cast<std::size_t>(i % 29), 'a' + i % 7) + "b\"}\n";
  place.folder().write("documents.jsonl", lines);
  const std::string path = "data.path='" + (place / "documents.jsonl").string() + "'";
  const bool masked = GENERATE(true, false), packs = GENERATE(true, false);
  if (!masked && !packs) return;  // has cases of its own
  std::vector<std::string> overrides = {path, "train.steps=3"};
  if (masked) overrides.emplace_back("task=masked_language_model");
  if (packs) overrides.emplace_back("data.packing=spfhp");
  auto run = trained(place, overrides);
  CHECK(inspect(run, "aab").causal == !masked);
  const auto task = make_task(run.experiment.config, true, std::move(run.codec));
  const auto found = inspect_split(run, task);
  const auto [loss, targets] = sums_by_position(found);
  const auto whole = evaluate_split({*run.predictor, task}, Split::validation);
  CHECK(loss / targets == Approx(whole.at("loss").get<double>()));
  CHECK(targets == whole.at(masked ? "targets" : "tokens").get<double>());
  CHECK(found.loss_by_context.empty());
}

TEST_CASE("the gradient with respect to the embeddings is that of the position table", "[inspect]") {
  // One sequence: every position gets the gradient of one vector.
  const Workplace place;
  auto run = trained(place, {"train.steps=2", "train.batch_size=1"});
  const auto task = make_task(run.experiment.config, true, std::move(run.codec));
  const auto gradients = inspect_split(run, task).gradients;
  for (const auto& parameter : run.model->parameters()) CHECK_FALSE(parameter.grad().defined());

  const auto batch = task.batches->random_batch(Split::validation, 0, torch::kCPU);
  (task.objective->loss(run.model->evaluate(batch), batch) / batch.weight).backward();
  const auto named = run.model->named_parameters();
  const auto& table = named["transformer.position_embedding.weight"];
  CHECK(gradients.stream.embedding == Approx(table.grad().norm().item<double>()).epsilon(1e-5));
  double squares = 0;
  for (const auto& parameter : named)
    if (parameter.key().starts_with("transformer.blocks.1.feed_forward"))
      squares += parameter.value().grad().square().sum().item<double>();
  CHECK(gradients.feed_forward.at(1) == Approx(std::sqrt(squares)).epsilon(1e-5));
  CHECK(gradients.stream.after_feed_forward.size() == 2);
}

TEST_CASE("the effective context is the smallest from which on the loss stays within 1%", "[inspect]") {
  CHECK(effective_context_of({{1, 3.0}, {2, 2.0}, {4, 1.009}, {8, 1.0}}) == 4);
  CHECK(effective_context_of({{1, 1.0}, {2, 2.0}, {4, 1.02}, {8, 1.0}}) == 8);
  CHECK(effective_context_of({{1, 1.0}, {2, 0.99}, {4, 1.0}}) == 1);
}

TEST_CASE("what cannot be inspected is refused", "[inspect]") {
  const Workplace place;
  const auto run = trained(place, {"train.steps=2"});
  CHECK(failure([&] { ids_of_text(run, "", 64); }).second.find("empty") != std::string::npos);
  CHECK(ids_of_text(run, "the quick brown fox", 64).size() == 16);  // the context
  CHECK(ids_of_text(run, "the quick brown fox", 5).size() == 5);
  CHECK(failure([&] {
          inspect_text(run, std::vector<std::int32_t>(most_inspected_tokens + 1));
        }).second.find("too long to inspect") != std::string::npos);
}

}  // namespace metaformer
