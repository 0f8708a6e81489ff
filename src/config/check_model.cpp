#include "config/check_model.h"

#include <fmt/format.h>

#include "config/fail.h"

namespace metaformer {

namespace {

void check_positions(const TransformerConfig& model, const Provenance& provenance,
                     const std::string& mixer_key = "model.mixer") {
  const auto kind = kind_of(model.positions);
  if (act_on_scores(model.positions) && !model.mixer->has_scores())
    fail(provenance, {"model.positions", "model.positions.kind", mixer_key, mixer_key + ".kind"},
         fmt::format("'{}' changes scores, and the mixer {} has none that it could change: set it to learned, "
                     "sinusoidal or none",
                     kind, model.mixer->kind()));
  const auto* rotary = std::get_if<RotaryPositionsConfig>(&model.positions);
  if (rotary != nullptr && rotary->rotated_width(model.head_width()) == 0)
    fail(provenance, {"model.positions.fraction", "model.positions.kind", "model.width", "model.heads"},
         fmt::format("{} of a head's {} features leaves no pair to rotate", rotary->fraction, model.head_width()));
  const auto* t5 = std::get_if<T5PositionsConfig>(&model.positions);
  if (t5 != nullptr && t5->max_distance <= t5->buckets / 2)
    fail(provenance, {"model.positions.max_distance", "model.positions.buckets"},
         fmt::format("{} must be above half of model.positions.buckets, {}", t5->max_distance, t5->buckets / 2));
  if (is<TransformerXlPositionsConfig>(model.positions) && model.width % 2 != 0)
    fail(provenance, {"model.width", "model.positions", "model.positions.kind"},
         fmt::format("{} is odd, and transformer_xl has a sine and a cosine for each frequency", model.width));
}

// Of models that go on from batch to batch.
void check_order(const ExperimentConfig& config, const Provenance& provenance) {
  if (tokens_before_segment(config.model) == 0) return;
  const std::string key(order_key(config.model));
  const auto* transformer = std::get_if<TransformerConfig>(&config.model);
  const auto value = transformer == nullptr ? "true" : std::to_string(transformer->memory);
  const auto off = fmt::format("{} to {}", key, transformer == nullptr ? "false" : "0");
  const auto* task = std::get_if<LanguageModelConfig>(&config.task);
  if (task == nullptr)
    fail(provenance, {key, "task.kind"},
         fmt::format("{} has no meaning for task {}: it is for texts that are read in order, as language_model does",
                     value, kind_of(config.task)));
  if (packing_options(task->data.packing) != nullptr)
    fail(provenance, {"data.packing", "data.packing.kind", key},
         fmt::format("'{}' puts texts in any order, and {} needs what was before them: set data.packing to none, or {}",
                     kind_of(task->data.packing), key, off));
  if (is<RandomEvaluationConfig>(config.train.evaluation))
    fail(provenance, {"train.evaluation", "train.evaluation.kind", key},
         "'random' batches have nothing before them to remember: set it to limited or whole");
  if (config.train.overfit_batch)
    fail(provenance, {"train.overfit_batch", key},
         fmt::format("true shows one batch again and again, and with {} a batch goes on from the one before it: set {}",
                     key, off));
}

void check_memory(const TransformerConfig& model, const Provenance& provenance) {
  if (model.same_length && model.memory == 0)
    fail(provenance, {"model.same_length", "model.memory"},
         "means nothing without model.memory: set it to false, or model.memory to a number of tokens");
  if (model.same_length && !model.mixer->has_scores())
    fail(provenance, {"model.same_length", "model.mixer", "model.mixer.kind"},
         fmt::format("has no effect on the mixer {}, which has no scores", model.mixer->kind()));
  if (model.memory > 0 && model.mixer->chooses_by_whole_sequence())
    fail(provenance, {"model.memory", "model.mixer", "model.mixer.kind"},
         fmt::format("the mixer {} takes no longer context: set it to 0", model.mixer->kind()));
}

void check_reversible_blocks(const TransformerConfig& model, const Provenance& provenance) {
  if (model.blocks != BlockKind::reversible) return;
  if (position_of(model.norm) == NormPosition::post)
    fail(
        provenance, {"model.blocks", "model.norm.position"},
        "'reversible' takes branches off again, which a norm behind their sum prevents: set model.norm.position to pre "
        "or both");
  if (!model.residual)
    fail(provenance, {"model.blocks", "model.residual"},
         "'reversible' is made of residual connections: set model.residual to true");
}

void check_regions(const TransformerConfig& model, const Provenance& provenance) {
  const auto* regions = sequence_regions(model.embedding);
  if (regions == nullptr) return;
  if (regions->shortest > regions->longest)
    fail(provenance, {"model.embedding.region.shortest", "model.embedding.region.longest"},
         fmt::format("{} is above model.embedding.region.longest {}", regions->shortest, regions->longest));
  if (model.width % regions->sizes() != 0)
    fail(provenance, {"model.width", "model.embedding.region.shortest", "model.embedding.region.longest"},
         fmt::format("{} cannot be divided equally among {} sizes of regions", model.width, regions->sizes()));
}

// Without blocks the head reads the embeddings.
void check_without_blocks(const TransformerConfig& model, const ExperimentConfig& config,
                          const Provenance& provenance) {
  const auto* task = std::get_if<ClassificationConfig>(&config.task);
  if (task == nullptr)
    fail(provenance, {"model.layers", "task.kind"},
         fmt::format("0 is for classification: a model of task {} needs blocks", kind_of(config.task)));
  if (is<FirstTokenHeadConfig>(task->head))
    fail(provenance, {"model.layers", "task.head", "task.head.kind"},
         "0 lets the class token see nothing of the text: set task.head to another kind, or model.layers to 1 or more");
  if (!is<NoPositionsConfig>(model.positions))
    fail(provenance, {"model.positions", "model.positions.kind", "model.layers"},
         fmt::format("'{}' says nothing with model.layers 0, where no token meets another: set it to none",
                     kind_of(model.positions)));
}

// What is at odds among the options of a mixer, which speak of model.mixer.
void check_mixer(const MixerConfig& mixer, const MixerShape& shape, const std::string& key,
                 const Provenance& provenance) {
  const std::string usual = "model.mixer";
  auto problem = mixer->problem(shape);
  if (!problem) return;
  for (auto& named : problem->keys)
    if (named.starts_with(usual)) named.replace(0, usual.size(), key);
  fail(provenance, problem->keys, problem->what);
}

void check_blocks(const TransformerConfig& model, const Provenance& provenance) {
  if (model.width % model.heads != 0)
    fail(provenance, {"model.heads", "model.width"},
         fmt::format("{} heads do not divide model.width {}", model.heads, model.width));
  if (model.hidden_width() < 1)
    fail(provenance, {"model.feed_forward.ratio", "model.width"},
         fmt::format("{} times model.width {} leaves no hidden unit",
                     std::visit([](const auto& options) { return options.ratio; }, model.feed_forward), model.width));
  check_positions(model, provenance);
  check_memory(model, provenance);
  check_reversible_blocks(model, provenance);
  check_mixer(model.mixer, model.mixer_shape(), "model.mixer", provenance);
}

void check(const TransformerConfig& model, const ExperimentConfig& config, const Provenance& provenance) {
  check_regions(model, provenance);
  if (model.layers == 0)
    check_without_blocks(model, config, provenance);
  else
    check_blocks(model, provenance);
}

void check(const EncoderDecoderConfig& model, const ExperimentConfig& config, const Provenance& provenance) {
  if (!is<SequenceToSequenceConfig>(config.task))
    fail(provenance, {"model.kind", "task.kind"},
         fmt::format("encoder_decoder has no meaning for task {}: it is for sequence_to_sequence",
                     kind_of(config.task)));
  check_blocks(model, provenance);
  const auto encoder = model.encoder_blocks();
  check_positions(encoder, provenance, "model.encoder.mixer");
  check_mixer(encoder.mixer, encoder.mixer_shape(), "model.encoder.mixer", provenance);
  if (!model.cross_mixer->can_cross())
    fail(provenance, {"model.cross_mixer", "model.cross_mixer.kind"},
         fmt::format("{} with these options mixes a sequence with itself only: set it to scaled_dot_product, quadratic "
                     "(projected) or metric",
                     kind_of(model.cross_mixer)));
  check_mixer(model.cross_mixer, model.cross_shape(), "model.cross_mixer", provenance);
}

// Of models that predict a token from those before it, and nothing else.
void require_causal_task(const ExperimentConfig& config, const Provenance& provenance) {
  if (!is_causal(config.task))
    fail(provenance, {"model.kind", "task.kind"},
         fmt::format("{} predicts tokens from those before them, and task {} needs a model that sees a whole text",
                     kind_of(config.model), kind_of(config.task)));
}

void check(const RecurrentConfig&, const ExperimentConfig& config, const Provenance& provenance) {
  require_causal_task(config, provenance);
}

void check(const FeedForwardModelConfig& model, const ExperimentConfig& config, const Provenance& provenance) {
  require_causal_task(config, provenance);
  if (!model.embedding.tie) return;
  if (model.hidden != model.width)
    fail(provenance, {"model.embedding.tie", "model.hidden", "model.width"},
         fmt::format("the output layer has the embeddings' matrix only where model.hidden, {}, is model.width, {}",
                     model.hidden, model.width));
}

void check(const LinearConfig&, const ExperimentConfig& config, const Provenance& provenance) {
  if (!is<ClassificationConfig>(config.task))
    fail(provenance, {"model.kind", "task.kind"},
         fmt::format("linear has no meaning for task {}: it is for classification", kind_of(config.task)));
}

// Of networks.
template <class Model>
void check_embedding(const Model& model, const ExperimentConfig& config, const Provenance& provenance) {
  if constexpr (requires { model.embedding; })
    if (model.embedding.scale == EmbeddingScale::log_count_ratio && !is<ClassificationConfig>(config.task))
      fail(provenance, {"model.embedding.scale", "task.kind"},
           fmt::format("'log_count_ratio' has no meaning for task {}: set it to none or sqrt_width",
                       kind_of(config.task)));
}

}  // namespace

void check_model(const ExperimentConfig& config, const Provenance& provenance) {
  if (is<SequenceToSequenceConfig>(config.task) && !is<EncoderDecoderConfig>(config.model))
    fail(provenance, {"model.kind", "task.kind"},
         fmt::format("{} sees one sequence, and task sequence_to_sequence has two: set it to encoder_decoder",
                     kind_of(config.model)));
  std::visit(
      [&](const auto& model) {
        check(model, config, provenance);
        check_embedding(model, config, provenance);
      },
      config.model);
  check_order(config, provenance);
}

}  // namespace metaformer
