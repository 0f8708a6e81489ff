// Measurements of blocks and attention while a model trains, and the warning of attention that has collapsed.

#include <cmath>

#include "tasks/batches.h"
#include "tasks/task_examples.h"
#include "train/diagnostics.h"

namespace metaformer {

namespace {

using Json = nlohmann::ordered_json;
using Overrides = std::vector<std::string>;

const std::vector<std::pair<std::string, Overrides>> language_models = {
    {"metric", {"model.mixer=metric"}},
    {"scaled dot product, alibi", {"model.mixer=scaled_dot_product", "model.positions=alibi"}},
    {"full form, shaw", {"model.mixer={kind: quadratic, form: full}", "model.positions=shaw"}},
    {"distance", {"model.mixer={kind: metric, constraint: psd, score: distance}", "model.positions=transformer_xl"}},
    {"dropout in bf16", {"model.dropout=0.2", "train.precision=bf16"}},
    {"fp16", {"train.precision=fp16"}},
    {"reversible, chunks", {"model.blocks=reversible", "model.feed_forward.chunks=2", "train.loss_chunks=2"}},
    {"memory", {"model.memory=8", "model.positions=transformer_xl"}},
    {"slices", {"train.cpu_slices=2", "train.accumulate=2"}},
    {"frozen", {"train.freeze=[transformer.token_embedding, transformer.blocks.0]"}},
    {"post-norm without residual", {"model.norm.position=post", "model.residual=false"}},
    {"lsh", {"model.mixer={kind: lsh, chunk: 4}"}},
    {"pooling", {"model.mixer=average_pooling"}},
    {"identity", {"model.mixer=identity"}},
    {"none", {"model.mixer=none"}},
    {"masked", {"task=masked_language_model"}},
    {"lstm", {"model={kind: lstm, width: 16, layers: 2, context: 16}"}},
    {"feed_forward", {"model={kind: feed_forward, window: 3, width: 16, hidden: 12, context: 16}"}},
};

bool has_scores(const std::string& name) {
  return name != "lsh" && name != "pooling" && name != "identity" && name != "none";
}
bool has_blocks(const std::string& name) { return name != "lstm" && name != "feed_forward"; }

std::vector<Json> diagnostics_of(const std::filesystem::path& run) {
  std::istringstream stream(read_text(run / "metrics.jsonl"));
  std::vector<Json> lines;
  for (std::string line; std::getline(stream, line);)
    if (auto json = Json::parse(line); json.at("split") == "diagnostics") lines.push_back(std::move(json));
  return lines;
}

void check_attention(const Json& block, const std::string& prefix) {
  for (const auto& entropy : block.at(prefix + "attention_entropy")) {
    CHECK(entropy.get<double>() >= 0);
    CHECK(entropy.get<double>() <= 1);
  }
  CHECK(block.at(prefix + "attention_entropy").size() == 2);
  for (const auto& deviation : block.at(prefix + "score_std")) CHECK(deviation.get<double>() >= 0);
  CHECK(block.at(prefix + "score_max").get<double>() >= 0);
}

void check_block(const Json& block) {
  CHECK(block.at("stream_norm").get<double>() > 0);
  CHECK(block.at("mixer_norm").get<double>() >= 0);
  CHECK(block.at("feed_forward_norm").get<double>() > 0);
  CHECK(block.at("stream_gradient").get<double>() > 0);
}

std::size_t warnings_of(const std::filesystem::path& run) {
  std::istringstream lines(read_text(run / "train.log"));
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line);) count += line.find("has collapsed") != std::string::npos;
  return count;
}

// Of a training whose scores are so large that every query attends to one key, and that does not change them.
Overrides one_token(const Overrides& more = {}) {
  Overrides all = {"model.mixer=metric", "model.mixer.score_std=100000", "train.learning_rate=1e-9",
                   "train.schedule={kind: constant, warmup_steps: 2}"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

}  // namespace

TEST_CASE("attention has collapsed where heads attend to one token on the whole, or all to every token", "[watch]") {
  const double low = least_mean_entropy, high = least_entropy_of_uniform, nan = std::nan("");
  CHECK(collapsed({}) == CollapseKind::none);
  CHECK(collapsed({0, low, 1.9 * low}) == CollapseKind::one_token);
  CHECK(collapsed({0, low, 2.1 * low}) == CollapseKind::none);
  CHECK(collapsed({0, 0, 0, 0, 0, least_greatest_entropy}) == CollapseKind::none);
  CHECK(collapsed({1, high}) == CollapseKind::uniform);
  CHECK(collapsed({1, high - 0.01}) == CollapseKind::none);
  CHECK(collapsed({0, 1}) == CollapseKind::none);
  CHECK(collapsed({0, nan}) == CollapseKind::none);
  CHECK(collapsed({nan, 1}) == CollapseKind::none);
}

TEST_CASE("there are forty looks in a training, the last at its end, and none before its first step", "[watch]") {
  const auto steps = GENERATE(std::int64_t{40}, std::int64_t{2000}, std::int64_t{2019});
  std::vector<std::int64_t> due;
  for (std::int64_t step = 0; step <= steps; ++step)
    if (is_look_due(step, steps)) due.push_back(step);
  CHECK(due.size() == 40);
  CHECK(due.front() == (steps + 39) / 40);
  CHECK(due.back() == steps);
  CHECK(is_look_due(1, 7));
  CHECK_FALSE(is_look_due(0, 7));
}

TEST_CASE("uniform attention counts behind the warm-up, when two looks in a row agree that it stays so", "[watch]") {
  const Workplace place;
  const auto experiment = place.experiment({"train.steps=80", "train.schedule={kind: constant, warmup_steps: 10}"});
  Parts parts(experiment);
  StreamDiagnostics diagnostics(experiment.config, parts.task, *parts.model, torch::kCPU);
  const AttentionWatch watch(experiment.config, diagnostics);
  Progress progress;
  const auto look = [&](std::int64_t step, double entropy) {
    progress.step = step;
    watch.note({entropy, entropy}, progress);
    return progress.collapse.has_value();
  };
  CHECK_FALSE(look(6, 1));
  CHECK_FALSE(look(10, 1));
  CHECK_FALSE(look(12, 1));
  CHECK_FALSE(look(13, 1));  // measured for the diagnostics: no look
  CHECK_FALSE(look(14, 0.5));
  CHECK_FALSE(look(16, 1));
  CHECK_FALSE(look(18, 0.9991));  // it learns
  CHECK(look(20, 0.999));
  CHECK(progress.collapse->kind == CollapseKind::uniform);
  CHECK(progress.collapse->step == 20);
  CHECK(progress.collapse->entropy == Approx(0.999));
  CHECK(look(22, 0));
  CHECK(progress.collapse->step == 20);  // the first that was found stays
}

TEST_CASE("training is the same to the byte with and without measurements, of every kind of model", "[watch]") {
  const Workplace place;
  const auto [name, overrides] = GENERATE(from_range(language_models));
  INFO(name);
  auto more = overrides;
  more.insert(more.end(), {"train.steps=6", "train.schedule={kind: constant, warmup_steps: 2}"});
  place.train("plain", more);
  more.emplace_back("train.diagnostics_interval=1");
  place.train("measured", more);
  CHECK(model_bytes(place / "plain") == model_bytes(place / "measured"));
  CHECK(read_text(place / "plain/checkpoints/last/state.safetensors") ==
        read_text(place / "measured/checkpoints/last/state.safetensors"));
  const auto lines = diagnostics_of(place / "measured");
  REQUIRE(lines.size() == 6);
  for (const auto& line : lines) {
    CHECK(line.at("token_embedding").contains("stream_norm") == has_blocks(name));
    if (!has_blocks(name)) continue;
    for (const auto* block : {"block_0", "block_1"}) {
      check_block(line.at(block));
      CHECK(line.at(block).contains("attention_entropy") == has_scores(name));
      if (has_scores(name)) check_attention(line.at(block), "");
    }
    CHECK(line.at("token_embedding").at("stream_gradient").get<double>() > 0);
  }
}

TEST_CASE("classifiers, sorters, and encoders with decoders are measured, and train as before", "[watch]") {
  const Workplace place;
  Overrides overrides;
  std::vector<std::string> blocks = {"block_0"};
  const std::string kind = GENERATE("sorter", "classifier", "regions", "pairs");
  CAPTURE(kind);
  if (kind == "sorter") overrides = sorter({"model.heads=2"});
  if (kind == "classifier") overrides = classifier(place, {"task.head=first_token", "data.packing=spfhp"});
  if (kind == "regions") overrides = classifier(place, {"model.embedding.region=sequence"});
  if (kind == "pairs") {
    place.folder().write("pairs.tsv", "source\ttarget\nthe quick brown fox\tthe fox\nthe lazy dog\ta dog\n");
    const auto path = "'" + (place / "pairs.tsv").string() + "'";
    overrides = {"task=sequence_to_sequence", "data.path=" + path, "data.validation_path=" + path,
                 "data.tokenizer={kind: word, min_count: 1}",
                 "model={kind: encoder_decoder, layers: 1, heads: 2, width: 16, context: 16, mixer: identity, "
                 "cross_mixer: metric}"};
    blocks = {"block_0", "encoder_block_0"};
  }
  overrides.insert(overrides.end(), {"train.steps=4", "train.eval_interval=4"});
  place.train("plain", overrides);
  overrides.emplace_back("train.diagnostics_interval=2");
  place.train("measured", overrides);
  CHECK(model_bytes(place / "plain") == model_bytes(place / "measured"));
  const auto lines = diagnostics_of(place / "measured");
  REQUIRE(lines.size() == 2);
  const bool crosses = blocks.size() == 2;
  for (const auto& name : blocks) {
    const auto& block = lines.back().at(name);
    check_block(block);
    CHECK(block.contains("attention_entropy") == (!crosses || name != "block_0"));
    CHECK(block.contains("cross_attention_entropy") == (crosses && name == "block_0"));
    CHECK(block.contains("cross_norm") == (crosses && name == "block_0"));
  }
  if (crosses) check_attention(lines.back().at("block_0"), "cross_");
}

TEST_CASE("the gradient by depth is that of backward, and no parameter's gradient changes", "[watch]") {
  struct Keeping : Probe {
    bool wants_scores() const override { return false; }
    void stream(StreamPoint point, const torch::Tensor& x_bcd) override {
      if (point != StreamPoint::embedding && point != StreamPoint::after_feed_forward) return;
      x_bcd.retain_grad();
      kept.push_back(x_bcd);
    }
    std::vector<torch::Tensor> kept;
  } probe;
  const Workplace place;
  Parts parts(place.experiment({}));
  parts.run(0, 1e-3);
  const auto gradients = parts.parameters->gradients().clone();
  StreamDiagnostics diagnostics(parts.experiment.config, parts.task, *parts.model, torch::kCPU);
  const auto stacks = diagnostics.measure(StreamDiagnostics::Gradients::of_stream);
  CHECK(torch::equal(parts.parameters->gradients(), gradients));
  REQUIRE(stacks.size() == 1);
  const auto batch = beginning_of(parts.task.batches->evaluation_batch(Split::validation, 0, torch::kCPU), 8);
  Pass pass{.probe = &probe};
  (parts.task.objective->loss(parts.model->forward(batch, nullptr, pass), batch) / batch.weight).backward();
  REQUIRE(probe.kept.size() == 3);
  const auto norm = [&](std::size_t i) { return probe.kept[i].grad().to(torch::kDouble).norm().item<double>(); };
  CHECK(stacks[0].gradients->embedding == Approx(norm(0)).epsilon(1e-4));
  CHECK(stacks[0].gradients->after_feed_forward.at(0) == Approx(norm(1)).epsilon(1e-4));
  CHECK(stacks[0].gradients->after_feed_forward.at(1) == Approx(norm(2)).epsilon(1e-4));
}

TEST_CASE("the probe batch is small however long the context is", "[watch]") {
  const Workplace place;
  Parts parts(place.experiment({"model.context=2048", "model.heads=16", "data.validation_fraction=0.5",
                                "model.positions=none", "train.batch_size=1"}));
  StreamDiagnostics diagnostics(parts.experiment.config, parts.task, *parts.model, torch::kCPU);
  const auto stacks = diagnostics.measure(StreamDiagnostics::Gradients::none);
  REQUIRE(stacks.size() == 1);
  CHECK(stacks[0].own.size() == 2);
  CHECK_FALSE(stacks[0].gradients);
  CHECK(attention_entropies(stacks).size() == 32);
}

TEST_CASE("collapsed attention is warned of once, also where a training goes on, and stands in the summary",
          "[watch]") {
  const Workplace place;
  place.train("run", one_token({"train.steps=5"}));
  CHECK(warnings_of(place / "run") == 1);
  const auto summary = place.train("run", one_token({"train.steps=12"}), true);
  CHECK(warnings_of(place / "run") == 1);
  const auto& collapse = summary.at("attention_collapse");
  CHECK(collapse.at("step") == 1);
  CHECK(collapse.at("kind") == "one_token");
  CHECK(collapse.at("entropy").get<double>() < 0.01);
  CHECK(read_text(place / "run/train.log")
            .find("step 1: attention has collapsed to one token (mean entropy of all heads: 0.00 of its maximum): try "
                  "model.mixer.qk_norm=true, model.mixer.values=own or a lower train.learning_rate") !=
        std::string::npos);
  CHECK_FALSE(place.train("usual", {}).contains("attention_collapse"));
  CHECK(warnings_of(place / "usual") == 0);
}

TEST_CASE("diagnostics find a collapse between two looks, and options that are set are not advised", "[watch]") {
  const Workplace place;
  const auto summary = place.train(
      "run", {"model.mixer={kind: scaled_dot_product, qk_norm: true, score_std: 1e5}", "train.learning_rate=1e-9",
              "train.schedule={kind: constant, warmup_steps: 2}", "train.steps=60", "train.diagnostics_interval=1"});
  CHECK(summary.at("attention_collapse").at("kind") == "one_token");
  CHECK(summary.at("attention_collapse").at("step") == 1);
  CHECK(read_text(place / "run/train.log").find("maximum): try a lower train.learning_rate") != std::string::npos);
}

}  // namespace metaformer
