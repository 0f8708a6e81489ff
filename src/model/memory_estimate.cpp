#include "model/memory_estimate.h"

#include <ATen/Parallel.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>

#include "attention/mixer.h"
#include "ops/autocast.h"

namespace metaformer {

namespace {

std::int64_t assumed_vocabulary(const ExperimentConfig& config) {
  if (const auto numbers = count_of_numbers(config.task)) return *numbers;
  if (const auto* task = std::get_if<SequenceToSequenceConfig>(&config.task))
    if (const auto* pairs = synthetic_options(task->data.synthetic)) return pairs->symbols;
  return std::visit(
      []<class Options>(const Options& options) -> std::int64_t {
        if constexpr (std::is_same_v<Options, CharacterTokenizerOptions>) return 128;
        if constexpr (std::is_same_v<Options, ByteTokenizerOptions>) return 256;
        if constexpr (std::is_same_v<Options, PretrainedTokenizerOptions>) return 50257;  // GPT-2's
        if constexpr (requires { options.vocabulary; }) return options.vocabulary;
      },
      data_of(config)->tokenizer);
}

constexpr std::uint64_t float_bytes = 4, half_bytes = 2;

double real(std::int64_t count) { return static_cast<double>(count); }

// The fraction of a batch that threads compute at the same time if it is cut into parts.
double share_at_once(std::int64_t parts) {
  return real(std::min<std::int64_t>(at::get_num_threads(), parts)) / real(parts);
}

// Numbers that the optimiser and the average of the weights keep for each weight. Muon's matrices have one moment, and
// a buffer for orthogonalisation. Adapters, which are small, keep a copy of the weights that they adapt.
std::uint64_t state_of_weight(const TrainConfig& train) {
  const std::uint64_t averages = train.weight_average.decay > 0 ? 1 : 0;
  if (train.lora.rank > 0) return 1 + averages;
  const auto* sgd = std::get_if<SgdConfig>(&train.optimizer);
  const std::uint64_t moments = is<AdagradConfig>(train.optimizer) ? 1 : sgd == nullptr ? 2 : sgd->momentum > 0 ? 1 : 0;
  return moments + averages;
}

// Numbers of floats, without the logits.
struct Activations {
  double of_token = 0;    // kept for backward, and temporary results of one layer's backward
  double of_row = 0;      // of the memory or state from which a row continues
  double evaluated = 0;   // for a token in an evaluation, which keeps one layer at a time
  bool are_half = false;  // with half precision part of them is half as large
};

// Recomputed activations are not kept.
Activations activations_of(const TransformerConfig& model) {
  const auto d = model.width, chunks = chunks_of(model.feed_forward), fed = model.up_width() + model.hidden_width();
  const auto* mlp = std::get_if<MlpConfig>(&model.feed_forward);
  std::int64_t of_mixers = 0, most_of_mixer = 0;
  for (const auto& [mixer, blocks] : model.blocks_by_mixer()) {
    const auto of_this = cost_of(*mixer, model.mixer_shape(), {.context = model.context + model.memory}).activations;
    of_mixers += blocks * of_this;
    most_of_mixer = std::max(most_of_mixer, of_this);
  }
  const auto of_block = (position_of(model.norm) == NormPosition::both ? 6 : 4) * d + fed / chunks +
                        (model.dropout > 0 ? 4 * d : 0) + (mlp != nullptr && mlp->output_activation ? d : 0) +
                        (model.convolution > 0 ? 2 * d : 0);
  const bool reversible = model.blocks == BlockKind::reversible;  // recomputes one block at a time
  constexpr std::int64_t of_remembered = 6;                       // with the results of norms and projections
  const auto of_blocks = reversible ? of_block + most_of_mixer : model.layers * of_block + of_mixers;
  return {.of_token = real(of_blocks) + real((reversible ? 8 : 2) * d + 2 * fed / chunks),
          .of_row = real(model.layers * model.memory) * real(of_remembered * d),
          .evaluated = real(3 * d + fed),
          .are_half = true};
}

// The gates, states and output of each layer, and temporary results of one layer's backward.
Activations activations_of(const RecurrentConfig& model) {
  const auto d = real(model.width), layers = real(model.layers);
  const double of_layer = real(model.gates() + 3 + (model.dropout > 0 ? 1 : 0)) * d;
  return {.of_token = (layers + 2) * of_layer, .of_row = 2 * layers * d, .evaluated = 2 * of_layer};
}

// Assumes sources as long as targets.
Activations activations_of(const EncoderDecoderConfig& model) {
  const auto decoder = activations_of(static_cast<const TransformerConfig&>(model)),
             encoder = activations_of(model.encoder_blocks());
  const auto cross =
      cost_of(model.cross_mixer, model.cross_shape(), {.context = model.context}).activations + 2 * model.width;
  return {.of_token = decoder.of_token + encoder.of_token + real(model.layers * cross),
          .evaluated = decoder.evaluated + encoder.evaluated,
          .are_half = true};
}

Activations activations_of(const FeedForwardModelConfig& model) {
  const auto inputs_and_hidden = real(model.inputs() + model.hidden);
  return {.of_token = (model.dropout > 0 ? 6 : 3) * inputs_and_hidden,
          .evaluated = 2 * inputs_and_hidden,
          .are_half = true};
}

Activations activations_of(const LinearConfig&) { return {}; }

// Without blocks a token has its vector with backward's temporary results or, if only the greatest values over the
// tokens are computed, the rows of the tables that it reads.
Activations activations_without_blocks(const TransformerConfig& model, const TaskConfig& task) {
  const auto* regions = sequence_regions(model.embedding);
  const auto* classifier = std::get_if<ClassificationConfig>(&task);
  const bool pools = classifier != nullptr && is<MaxPooledHeadConfig>(classifier->head);
  const bool drops = model.dropout > 0 || model.embedding.dropout > 0;
  if (regions == nullptr || drops || !pools)
    return {.of_token = 5 * real(model.width), .evaluated = 3 * real(model.width)};
  const auto of_token = 6 * real(regions->places());
  return {.of_token = of_token, .evaluated = of_token};
}

Activations activations_of(const ExperimentConfig& config) {
  const auto* transformer = std::get_if<TransformerConfig>(&config.model);
  if (transformer != nullptr && transformer->layers == 0) return activations_without_blocks(*transformer, config.task);
  return std::visit([](const auto& options) { return activations_of(options); }, config.model);
}

// The larger of the bytes that a training pass and an evaluation hold; in double, which no config overflows. An
// evaluation has larger batches, whose parts threads share (tasks/evaluation.cpp).
double most_activations(const ExperimentConfig& config, std::int64_t vocabulary, std::int64_t classes) {
  // With `copies` of the logits; on average, if only some tokens are targets.
  const auto logits_of_token = [&](double copies) {
    if (is<ClassificationConfig>(config.task)) return real(classes);
    return real(vocabulary) * copies * target_fraction(config.task);
  };
  const auto found = activations_of(config);
  const auto lists = list_task(config.task);
  const auto* recalled = recall_rows(config.task);
  const auto length = lists ? lists->row_length() : recalled != nullptr ? recalled->length : context_of(config.model);

  constexpr double trained_copies = 3;  // with the loss's results from the logits, and their gradient
  const double of_half = has_half_products(config.train.precision) ? 0.625 : 1;
  const auto size = real(config.train.batch_size);
  const auto tokens = batches_by_tokens(config.task) ? size : size * real(length), rows = tokens / real(length);
  const auto kept = tokens * found.of_token + rows * found.of_row;
  const auto logits = logits_of_token(trained_copies) / real(config.train.loss_chunks);
  const auto trained =
      (tokens * logits * of_half + kept * (found.are_half ? of_half : 1)) * share_at_once(config.train.cpu_slices);

  constexpr std::int64_t evaluated_tokens = 8192, parts = 8;
  // The joined logits exist beside their parts; if few tokens are targets, padded parts exist, too.
  const double evaluated_copies = target_fraction(config.task) < 1 ? 3.5 : 2.25;
  const auto evaluated = real(std::max(evaluated_tokens, length)) *
                         (logits_of_token(evaluated_copies) + found.evaluated * share_at_once(parts));
  return std::max(trained, evaluated) * static_cast<double>(float_bytes);
}

// LibTorch and small allocations. For products in half precision oneDNN compiles a kernel for every shape, and keeps up
// to 1024 of them; texts of many lengths make many shapes.
std::uint64_t program_bytes(const ExperimentConfig& config) {
  constexpr std::uint64_t MiB = std::uint64_t{1} << 20, program = 200 * MiB, half_products = 64 * MiB,
                          kernel = 650 << 10;
  constexpr std::uint64_t most_kernels = 1024, kernels_per_block = 16, length_step = 8;
  if (is<LinearConfig>(config.model) || !has_half_products(config.train.precision)) return program;
  if (!is<ClassificationConfig>(config.task)) return program + half_products;
  const auto& model = transformer(config);
  const auto lengths = static_cast<std::uint64_t>(model.context) / length_step + 1;
  const auto kernels = kernels_per_block * static_cast<std::uint64_t>(model.layers) * lengths;
  return program + std::min(most_kernels, kernels) * kernel;
}

}  // namespace

std::uint64_t MemoryEstimate::total() const {
  std::uint64_t sum = state();  // far below 2^64 by the ranges of the config
  for (const auto bytes : {activations, program})
    if (__builtin_add_overflow(sum, bytes, &sum)) return std::numeric_limits<std::uint64_t>::max();
  return sum;
}

MemoryEstimate estimate_memory(const ExperimentConfig& config, const ModelSizes& data) {
  const auto classes = std::max<std::int64_t>(data.classes, 2);
  MemoryEstimate estimate{.vocabulary = data.vocabulary > 0 ? data.vocabulary : assumed_vocabulary(config)};
  estimate.parameters = count_parameters(config, {.vocabulary = estimate.vocabulary, .classes = classes});
  estimate.weights = static_cast<std::uint64_t>(estimate.parameters) * float_bytes;
  estimate.program = program_bytes(config);
  if (is<LinearConfig>(config.model)) {                                  // fitted at once: no gradients, no optimiser
    estimate.activations = 2 * estimate.weights + 2 * estimate.weights;  // in double, and copies for the checkpoint
    return estimate;
  }
  const auto slices = static_cast<std::uint64_t>(config.train.cpu_slices);
  estimate.gradients = estimate.weights * (slices > 1 ? 1 + slices : 1);
  estimate.optimizer = state_of_weight(config.train) * estimate.weights;
  const auto checkpoint = 2 * (estimate.weights + estimate.optimizer);  // copied and read back while it is written
  // At most 2^62, which no machine has.
  estimate.activations = static_cast<std::uint64_t>(std::min(
      std::max(most_activations(config, estimate.vocabulary, classes), static_cast<double>(checkpoint)), 0x1p62));
  if (has_half_products(config.train.precision))  // which the checkpoint does not copy
    estimate.weights += static_cast<std::uint64_t>(estimate.parameters) * half_bytes;
  return estimate;
}

bool clearly_exceeds(const MemoryEstimate& estimate, std::uint64_t bytes) {
  constexpr double margin = 1.25;
  return static_cast<double>(estimate.state()) + static_cast<double>(estimate.activations) >
         margin * static_cast<double>(bytes);
}

std::uint64_t machine_memory() {
  const auto physical =
      static_cast<std::uint64_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  std::uint64_t allowed = physical;
  std::ifstream limit("/sys/fs/cgroup/memory.max");  // holds "max" without a limit
  if (std::uint64_t bytes = 0; limit >> bytes) allowed = std::min(allowed, bytes);
  rlimit space{};
  if (::getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY)
    allowed = std::min<std::uint64_t>(allowed, space.rlim_cur);
  return allowed;
}

}  // namespace metaformer
