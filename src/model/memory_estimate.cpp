#include "model/memory_estimate.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

namespace metaformer {

namespace {

template <class... Cases>
struct Overloaded : Cases... {
  using Cases::operator()...;
};
template <class... Cases>
Overloaded(Cases...) -> Overloaded<Cases...>;

MixerCost mixer_cost(const TransformerConfig& model) {
  return model.mixer->cost(model.mixer_shape(), {.context = model.context + model.memory});
}

std::int64_t assumed_vocabulary(const ExperimentConfig& config) {
  if (const auto lists = list_task(config.task)) return lists->vocabulary();
  return std::visit(Overloaded{[](const CharacterTokenizerOptions&) { return std::int64_t{128}; },
                               [](const ByteTokenizerOptions&) { return std::int64_t{256}; },
                               [](const auto& o) { return o.vocabulary; }},
                    data_of(config)->tokenizer);
}

// Floats that one token of one block leaves for the backward pass. What is computed again is not kept.
std::int64_t block_activations(const TransformerConfig& model) {
  const auto d = model.width, chunks = chunks_of(model.feed_forward);
  const bool drops = model.dropout > 0, both = position_of(model.norm) == NormPosition::both;
  const auto* mlp = std::get_if<MlpConfig>(&model.feed_forward);
  const bool activates_output = mlp != nullptr && mlp->output_activation;
  return (both ? 6 : 4) * d + mixer_cost(model).activations + (model.up_width() + model.hidden_width()) / chunks +
         (drops ? 4 * d : 0) + (activates_output ? d : 0);
}

constexpr std::uint64_t float_bytes = 4;

// At most 2^62, which no machine has.
std::uint64_t to_bytes(double bytes) { return static_cast<std::uint64_t>(std::min(bytes, 0x1p62)); }

std::int64_t sequence_length(const ExperimentConfig& config) {
  const auto lists = list_task(config.task);
  return lists ? lists->row_length() : context_of(config.model);
}

// What the loss makes of the logits: their softmax and its gradient beside them.
std::int64_t logits_of_token(const ExperimentConfig& config, std::int64_t vocabulary, std::int64_t classes) {
  return is<ClassificationConfig>(config.task) ? classes : 3 * vocabulary;
}

bool has_half_products(Precision precision) { return precision == Precision::bf16 || precision == Precision::fp16; }

// Numbers that the optimiser and the average of the weights keep for each weight. Muon's matrices have one moment, and
// room for what is orthogonalised.
std::uint64_t state_of_weight(const TrainConfig& train) {
  const auto* sgd = std::get_if<SgdConfig>(&train.optimizer);
  const std::uint64_t moments = sgd == nullptr ? 2 : sgd->momentum > 0 ? 1 : 0;
  return moments + (train.weight_average.decay > 0 ? 1 : 0);
}

// Of a row, of all blocks: what is remembered, and what norms and projections make of it.
double memory_floats(const TransformerConfig& model) {
  constexpr std::int64_t of_token = 6;
  return static_cast<double>(model.layers * model.memory) * static_cast<double>(of_token * model.width);
}

// Beside what all blocks keep: the logits, and what the backward pass of one block makes. With half precision part of
// all is half as large. In double, which no config overflows.
double training_activations(const ExperimentConfig& config, std::int64_t vocabulary, std::int64_t classes) {
  const auto& model = transformer(config);
  constexpr double of_half = 0.625;
  const bool reversible = model.blocks == BlockKind::reversible;  // one block is computed again at a time
  const auto chunks = chunks_of(model.feed_forward);
  const auto floats =
      static_cast<double>(reversible ? 1 : model.layers) * static_cast<double>(block_activations(model)) +
      static_cast<double>(logits_of_token(config, vocabulary, classes) / config.train.loss_chunks +
                          (reversible ? 8 : 2) * model.width +
                          (2 * model.up_width() + 2 * model.hidden_width()) / chunks);
  const auto rows = static_cast<double>(config.train.batch_size);
  return (rows * static_cast<double>(sequence_length(config)) * floats + rows * memory_floats(model)) *
         static_cast<double>(float_bytes) * (has_half_products(config.train.precision) ? of_half : 1);
}

// An evaluation keeps one block at a time, but has larger batches.
double evaluation_activations(const ExperimentConfig& config, std::int64_t vocabulary, std::int64_t classes) {
  constexpr std::int64_t tokens = 8192;
  const auto& model = transformer(config);
  const auto floats =
      logits_of_token(config, vocabulary, classes) + 3 * model.width + model.up_width() + model.hidden_width();
  return static_cast<double>(std::max(tokens, sequence_length(config))) * static_cast<double>(floats) *
         static_cast<double>(float_bytes);
}

// LibTorch and what is small. For products in half precision oneDNN compiles a kernel for every shape, and keeps up to
// 1024 of them; texts of many lengths make many shapes.
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

std::int64_t count_parameters(const ExperimentConfig& config, std::int64_t vocabulary, std::int64_t classes) {
  if (const auto* linear = std::get_if<LinearConfig>(&config.model)) return (linear->buckets + 1) * classes;
  const auto& model = transformer(config);
  const auto d = model.width, u = model.up_width(), h = model.hidden_width(), bias = std::int64_t{model.bias};
  const auto* classifier = std::get_if<ClassificationConfig>(&config.task);
  const auto class_token = std::int64_t{classifier != nullptr && is<FirstTokenHeadConfig>(classifier->head)};
  const auto norm = d * (1 + (has_bias(model.norm) ? bias : 0));
  const auto norms = position_of(model.norm) == NormPosition::both ? 4 * norm : 2 * norm;
  const auto block = mixer_cost(model).parameters + d * u + d * h + bias * (u + d) + norms;
  auto total = (vocabulary + class_token) * d + model.layers * block;
  if (is<LearnedPositionsConfig>(model.positions)) total += (model.context + class_token) * d;
  if (const auto* t5 = std::get_if<T5PositionsConfig>(&model.positions)) total += t5->buckets * model.heads;
  if (const auto* xl = std::get_if<TransformerXlPositionsConfig>(&model.positions); xl != nullptr && xl->shared_biases)
    total += 2 * model.heads * model.mixer->key_width(model.mixer_shape());
  if (model.embedding.ngrams.order > 1) total += model.embedding.ngrams.buckets * d;
  if (has_final_norm(model.norm)) total += norm;
  if (classifier != nullptr) {
    total += classes * (d + 1) + (is<MeanPooledHeadConfig>(classifier->head) ? norm : 0);
  } else if (!model.embedding.tie) {
    total += vocabulary * d;
  }
  return total;
}

MemoryEstimate estimate_memory(const ExperimentConfig& config, const DataSizes& data) {
  const auto classes = std::max<std::int64_t>(data.classes, 2);
  MemoryEstimate estimate{.vocabulary = data.vocabulary > 0 ? data.vocabulary : assumed_vocabulary(config)};
  estimate.parameters = count_parameters(config, estimate.vocabulary, classes);
  estimate.weights = static_cast<std::uint64_t>(estimate.parameters) * float_bytes;
  estimate.program = program_bytes(config);
  if (is<LinearConfig>(config.model)) return estimate;  // fitted at once: no gradients, no optimiser
  const auto slices = static_cast<std::uint64_t>(config.train.cpu_slices);
  estimate.gradients = estimate.weights * (slices > 1 ? 1 + slices : 1);
  estimate.optimizer = state_of_weight(config.train) * estimate.weights;
  const auto checkpoint = 2 * (estimate.weights + estimate.optimizer);  // copied and read back while it is written
  estimate.activations = to_bytes(
      std::max({training_activations(config, estimate.vocabulary, classes),
                evaluation_activations(config, estimate.vocabulary, classes), static_cast<double>(checkpoint)}));
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
