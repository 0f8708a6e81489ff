// Inspections of runs that were trained for a few steps.

#include "config/mixer_config.h"
#include "ops/named_tensors.h"
#include "report/inspection.h"
#include "report/json.h"
#include "report/pictures.h"
#include "report/statistics.h"
#include "support/failure.h"
#include "tasks/evaluation.h"
#include "tasks/task_examples.h"

namespace metaformer::test_inspection {

namespace {

LoadedRun trained(const Workplace& place, Overrides overrides) {
  overrides.emplace_back("train.steps=3");
  place.train("run", overrides);
  return load_run(place / "run", "last", "cpu");
}

TextInspection inspect(const LoadedRun& run, const std::string& text) {
  return inspect_text(run, ids_of_text(run, text, 64));
}

}  // namespace

TEST_CASE("an inspection has the tokens and a layer for each block, and does not change the model", "[inspect]") {
  const Workplace place;
  const auto run = trained(place, {"model.mixer=metric"});
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
    CHECK(layer.axioms.size() == 2);
    CHECK(layer.distance_rank_correlation.empty());
  }
  CHECK(inspection.norms.after_feed_forward.size() == 2);
}

TEST_CASE("classifiers are inspected with class tokens or regions, and without blocks an inspection has only norms",
          "[inspect]") {
  const Workplace place;
  const auto with_token = inspect(trained(place, classifier(place, {"task.head=first_token"})), "marker word1");
  CHECK_FALSE(with_token.causal);
  CHECK(with_token.tokens == std::vector<std::string>{"[class]", "marker", "word1"});
  CHECK(with_token.layers[0].attention_nce.size(2) == 3);
  std::filesystem::remove_all(place / "run");
  const auto run = trained(place, classifier(place, {"model.embedding.region=sequence"}));
  const auto inspection = inspect(run, "word1 marker word2");
  REQUIRE(inspection.layers.size() == 1);
  CHECK(inspection.layers[0].attention_nce.sizes() == torch::IntArrayRef({2, 3, 3}));
  CHECK(inspection.layers[0].distance_nvv.isfinite().all().item<bool>());
  std::filesystem::remove_all(place / "run");
  const auto pooled =
      trained(place, classifier(place, {"model.embedding.region=sequence", "model.layers=0", "model.heads=4",
                                        "model.positions=none", "task.head=max_pooled"}));
  const auto without_blocks = inspect(pooled, "word1 marker word2");
  CHECK(without_blocks.layers.empty());
  CHECK(without_blocks.norms.embedding > 0);
}

TEST_CASE("the inspection of a mixer without scores has only norms", "[inspect]") {
  const Workplace place;
  const auto mixer = GENERATE("average_pooling", "identity", "none");
  const auto run = trained(place, {"model.mixer=" + std::string(mixer)});
  const auto inspection = inspect(run, "the quick");
  REQUIRE(inspection.layers.size() == 2);
  CHECK_FALSE(inspection.layers[0].has_scores());
  CHECK(inspection.norms.embedding > 0);
  CHECK(to_tensors(inspection).empty());
  CHECK(to_json(inspection, Matrices::packed)["layers"][0]["heads"].empty());
  CHECK(figures_of(inspection, "run").size() == 1);
}

TEST_CASE("the JSON of a page has the matrices of every head, without the half hidden by a causal mask", "[inspect]") {
  const Workplace place;
  const auto run = trained(place, {"model.mixer=quadratic"});
  const auto inspection = inspect(run, "the");
  const auto json = to_json(inspection, Matrices::packed);
  const auto& head = json["layers"][1]["heads"][0];
  CHECK(head["attention"] == pack(inspection.layers[1].attention_nce[0], true));
  CHECK(head["scores"] == pack(inspection.layers[1].score_nce[0], true));
  CHECK((head["scores"]["layout"] == "lower" && head["scores"]["rows"] == 3));
  CHECK(head["form"]["rows"] == 8);
  CHECK(head["input_form"]["rows"] == 16);
  CHECK(head["distances"]["rows"] == inspection.vocabulary.size());
  CHECK(to_json(inspection)["layers"][1]["heads"][0].contains("verdict"));
  CHECK_FALSE(to_json(inspection)["layers"][1]["heads"][0].contains("attention"));
}

TEST_CASE("a sorter is inspected with a list and its sorted copy", "[inspect]") {
  const Workplace place;
  const auto run = trained(place, sorter({"model.mixer=metric"}));
  CHECK(ids_of_text(run, "3 0 2 1", 64) == std::vector<std::int32_t>{3, 0, 2, 1, 0, 1, 2});
  CHECK_THAT(failure([&] { ids_of_text(run, "3 0", 64); }).second, ContainsSubstring("2 numbers"));
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
  const auto run = trained(place, pairs(place, {"model.mixer=identity", "model.cross_mixer=" + mixer,
                                                "model.encoder.mixer=metric", "model.positions=learned"}));
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
  const auto json = to_json(parts[2], Matrices::packed);
  CHECK(json["layers"][0]["heads"][0]["attention"]["columns"] == 4);
  for (const auto& [name, figure] : figures_of(parts[2], "run"))
    CHECK((name.starts_with("cross_") && is_picture(name + ".svg")));
}

TEST_CASE("losses by position add up to the loss of the split, and only plain language models have losses by context",
          "[inspect][masking][packing]") {
  const Workplace place;
  auto overrides = GENERATE(Overrides{}, Overrides{"model.memory=16", "model.positions=transformer_xl"},
                            Overrides{"task=masked_language_model"}, Overrides{"data.packing=spfhp"},
                            Overrides{"task=masked_language_model", "data.packing=spfhp"});
  const bool has_memory = !overrides.empty() && overrides.front() == "model.memory=16";
  if (!overrides.empty() && !has_memory) overrides.push_back("data.path=" + documents(place));
  auto run = trained(place, overrides);
  const bool masked = is<MaskedLanguageModelConfig>(run.experiment.config.task);
  CHECK(inspect(run, "fox").causal == !masked);
  const auto task = make_task(run.experiment.config, true, std::move(run.codec));
  const auto found = inspect_split(run, task);
  double loss = 0, targets = 0;
  for (const auto& entry : found.loss_by_position) {
    loss += entry.loss * static_cast<double>(entry.targets);
    targets += static_cast<double>(entry.targets);
  }
  const auto whole = evaluate_split({*run.predictor, task}, Split::validation);
  CHECK(loss / targets == Approx(whole.at("loss")));
  CHECK(targets == whole.at(masked ? "targets" : "tokens"));
  CHECK(found.gradients.mixer.size() == static_cast<std::size_t>(transformer(run.experiment.config).layers));
  CHECK(found.loss_by_context.empty() == !overrides.empty());
  if (overrides.empty()) {
    // Every context starts at position 0, so with one token every target is predicted as at the first position.
    CHECK(found.loss_by_context.front().tokens == 1);
    CHECK(found.loss_by_context.back().tokens == 16);
    CHECK(found.context_targets > 0);
    CHECK(found.effective_context.has_value());
    CHECK(figures_of(found, "run").size() == 3);
  }
}

TEST_CASE("the gradient at the embeddings equals that of the position table", "[inspect]") {
  // With one sequence every position gets the gradient of one vector.
  const Workplace place;
  auto run = trained(place, {"train.batch_size=1"});
  const auto task = make_task(run.experiment.config, true, std::move(run.codec));
  const auto gradients = inspect_split(run, task).gradients;
  for (const auto& parameter : run.model->parameters()) CHECK_FALSE(parameter.grad().defined());

  const auto batch = task.batches->random_batch(Split::validation, 0, torch::kCPU);
  (task.objective(run.model->evaluate(batch), batch) / batch.weight).backward();
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

TEST_CASE("the effective context is the smallest one from which the loss stays within 1%", "[inspect]") {
  CHECK(effective_context_of({{1, 3.0}, {2, 2.0}, {4, 1.009}, {8, 1.0}}) == 4);
  CHECK(effective_context_of({{1, 1.0}, {2, 2.0}, {4, 1.02}, {8, 1.0}}) == 8);
  CHECK(effective_context_of({{1, 1.0}, {2, 0.99}, {4, 1.0}}) == 1);
}

TEST_CASE("empty texts are refused, and long ones are cut or refused", "[inspect]") {
  const Workplace place;
  const auto run = trained(place, {});
  CHECK_THAT(failure([&] { ids_of_text(run, "", 64); }).second, ContainsSubstring("empty"));
  CHECK(ids_of_text(run, "the quick brown fox", 64).size() == 16);  // the context
  CHECK(ids_of_text(run, "the quick brown fox", 5).size() == 5);
  const std::vector<std::int32_t> longest(most_inspected_tokens + 1);
  CHECK_THAT(failure([&] { inspect_text(run, longest); }).second, ContainsSubstring("too long to inspect"));
}

}  // namespace metaformer::test_inspection
