#pragma once
// A whole experiment as plain data: the task, the model, the training.

#include "config/data_config.h"
#include "config/model_config.h"
#include "config/recall_config.h"
#include "config/schema.h"
#include "config/train_config.h"
#include "config/yaml.h"

namespace metaformer {

// The task section of a config. A task that reads texts holds its `data` section, too.

// The unit that has equal weight in a loss.
enum class LossUnit { token, sequence };
constexpr std::array<std::string_view, 2> enum_names(LossUnit) { return {"token", "sequence"}; }

struct LanguageModelConfig : Named<"language_model", "the next token of a text"> {
  LossUnit loss = LossUnit::token;
  std::int64_t sample_interval = 0;
  TextDataConfig data;  // the top-level section `data`

  void visit(auto& field) {
    field("loss", loss, "training loss: the mean over all tokens, or of the means of the texts (with data.packing)");
    field("sample_interval", sample_interval, between(0, most_steps),
          "steps between generated texts in the log and samples.jsonl; 0: never");
  }
};

// Masked language modelling (BERT, Devlin et al. 2019, section 3.1).
struct MaskedLanguageModelConfig
    : Named<"masked_language_model", "hidden tokens of a text, from the tokens on both sides (BERT)"> {
  double fraction = 0.15;
  double masked = 0.8;
  double random = 0.1;
  bool whole_words = false;
  LossUnit loss = LossUnit::token;
  TextDataConfig data;  // the top-level section `data`

  void visit(auto& field) {
    field("fraction", fraction, above(0, 1),
          "probability that a token is a target, drawn again in every step; every sequence has at least one target");
    field("masked", masked, between(0, 1), "fraction of the targets that the model sees as the mask token");
    field("random", random, between(0, 1),
          "fraction of the targets that the model sees as a random token of the vocabulary; the rest stay visible");
    field("whole_words", whole_words, "all pieces of a word are targets, or none is; requires a subword tokenizer");
    field("loss", loss,
          "training loss: the mean over all targets, or of the means of the sequences (windows, or texts with "
          "data.packing)");
  }
};

// The array sorter (minGPT): lists of `length` numbers in 0 ... digits - 1.
struct SortConfig : Named<"sort", "the sorted copy of a list of numbers (minGPT)"> {
  std::int64_t length = 6, digits = 3;

  void visit(auto& field) {
    field("length", length, between(1, 4096), "numbers in a list; model.context must be at least 2 length - 1");
    field("digits", digits, between(2, 65536), "numbers are 0 ... digits - 1");
  }
};

// Reformer's synthetic task (Kitaev, Kaiser and Levskaya 2020, section 5): 0 w 0 w, where w are `length` numbers in 1
// ... digits.
struct CopyConfig : Named<"copy", "the second half of 0w0w, w a list of numbers (Reformer)"> {
  std::int64_t length = 127, digits = 127;

  void visit(auto& field) {
    field("length", length, between(1, 32768), "numbers in a list; model.context must be at least 2 length + 1");
    field("digits", digits, between(2, 65535), "numbers are 1 ... digits; 0 stands before each list");
  }
};

// The unit of train.batch_size.
enum class BatchUnit { sequence, token };
constexpr std::array<std::string_view, 2> enum_names(BatchUnit) { return {"sequence", "token"}; }

// The task of the first transformer (Vaswani et al. 2017).
struct SequenceToSequenceConfig
    : Named<"sequence_to_sequence", "a target text from a source text: a translation, a summary"> {
  double label_smoothing = 0;
  std::int64_t bucketing = 1;
  BatchUnit batch_unit = BatchUnit::sequence;
  ParallelDataConfig data;  // the top-level section `data`

  void visit(auto& field) {
    field("label_smoothing", label_smoothing, from_to_below(0, 1),
          "probability mass spread evenly over the vocabulary, the target included (torch's convention), in the "
          "training loss only");
    field("bucketing", bucketing, between(1, 1 << 20),
          "steps whose pairs are sorted by length together, for less padding; 1: no sorting");
    field("batch_unit", batch_unit,
          "unit of train.batch_size: pairs, or tokens of the longer side with padding, so that batches of short texts "
          "have more pairs");
  }
};

using TaskConfig =
    std::variant<LanguageModelConfig, MaskedLanguageModelConfig, ClassificationConfig, SequenceToSequenceConfig,
                 SortConfig, CopyConfig, RecallConfig, InductionConfig, SelectiveCopyConfig, ParityConfig,
                 MajorityConfig, InContextRecallConfig, FuzzyRecallConfig, MemorisationConfig, CompressionConfig>;

// The common keys of the tasks in config/recall_config.h; nullptr for other tasks.
inline const RecallRows* recall_rows(const TaskConfig& task) { return options_as<RecallRows>(task); }

// Whether a token is predicted from those before it only.
inline bool is_causal(const TaskConfig& task) {
  return is<LanguageModelConfig>(task) || is<SortConfig>(task) || is<CopyConfig>(task) || recall_rows(task) != nullptr;
}

// The data of a task that reads a text; nullptr for others.
inline const TextDataConfig* text_data_of(const TaskConfig& task) {
  if (const auto* next = std::get_if<LanguageModelConfig>(&task)) return &next->data;
  const auto* masked = std::get_if<MaskedLanguageModelConfig>(&task);
  return masked == nullptr ? nullptr : &masked->data;
}
inline TextDataConfig* text_data_of(TaskConfig& task) {
  return const_cast<TextDataConfig*>(text_data_of(std::as_const(task)));
}

// The form of the tasks of lists: a prompt that contains a list, and an answer of as many numbers.
struct ListTask {
  bool copies = false;  // the answer is the list itself; else the sorted list
  std::int64_t length = 0;
  std::int64_t digits = 0;

  std::int64_t first_number() const { return copies ? 1 : 0; }  // the smallest of `digits` consecutive numbers
  std::int64_t vocabulary() const { return digits + first_number(); }
  std::int64_t prompt_length() const { return copies ? length + 2 : length; }
  std::int64_t row_length() const { return prompt_length() + length - 1; }  // the last number is never read
};

// The form of a task of lists; nothing for other tasks.
inline std::optional<ListTask> list_task(const TaskConfig& task) {
  if (const auto* sort = std::get_if<SortConfig>(&task)) return ListTask{false, sort->length, sort->digits};
  if (const auto* copy = std::get_if<CopyConfig>(&task)) return ListTask{true, copy->length, copy->digits};
  return std::nullopt;
}

// The number of tokens of a task whose tokens are numbers; nothing for a task of texts.
inline std::optional<std::int64_t> count_of_numbers(const TaskConfig& task) {
  if (const auto lists = list_task(task)) return lists->vocabulary();
  return std::visit(
      [](const auto& options) -> std::optional<std::int64_t> {
        if constexpr (requires { options.answers(); }) return options.vocabulary;
        return std::nullopt;
      },
      task);
}

// The largest fraction of the tokens for which training computes logits; 0 for a classifier.
inline double target_fraction(const TaskConfig& task) {
  return std::visit(
      []<class Options>(const Options& options) -> double {
        if constexpr (std::is_same_v<Options, ClassificationConfig>) return 0;
        if constexpr (std::is_same_v<Options, MaskedLanguageModelConfig>) return options.fraction;
        if constexpr (requires { options.targets; })
          if (options.targets == TrainedTargets::tokens) return 1;
        if constexpr (requires { options.answers(); })
          return static_cast<double>(options.answers()) / static_cast<double>(options.length);
        return 1;
      },
      task);
}

// Whether a model of the task continues what it reads, token by token.
inline bool continues_text(const TaskConfig& task) { return is_causal(task) && !is<CompressionConfig>(task); }

// The whole experiment as plain data. Names, defaults, ranges and help of every config key are here, in the headers of
// its sections and nowhere else.
struct ExperimentConfig {
  TaskConfig task;
  ModelConfig model;
  TrainConfig train;

  void visit(auto& field) {
    field("task", task, "prediction that the model learns");
    // The fields of the section `data` depend on the task, and those of `train` on the model.
    field.section_of("data", "task", task, [](auto& task) -> decltype((task.data)) { return task.data; });
    field("model", model, "model that learns the task");
    field.section_of(
        "train", "model", model, [this](auto& model) -> auto& {
          if constexpr (std::is_same_v<decltype(model), LinearConfig&>)
            return static_cast<LinearTrainConfig&>(train);
          else
            return (train);
        });
  }
};

// Short forms of std::get, for a constant or mutable config. They throw std::bad_variant_access for another kind.
auto& transformer(auto&& config) { return std::get<TransformerConfig>(config.model); }
auto& classification(auto&& config) { return std::get<ClassificationConfig>(config.task); }
auto& language_model(auto&& config) { return std::get<LanguageModelConfig>(config.task); }

// Whether train.batch_size counts tokens.
inline bool batches_by_tokens(const TaskConfig& task) {
  const auto* pairs = std::get_if<SequenceToSequenceConfig>(&task);
  return pairs != nullptr && pairs->batch_unit == BatchUnit::token;
}

// The largest number of tokens in a training batch.
inline std::int64_t most_batch_tokens(const ExperimentConfig& config) {
  return batches_by_tokens(config.task) ? config.train.batch_size : config.train.batch_size * context_of(config.model);
}

// The keys of the section `data` that all tasks of texts share; nullptr for a task without texts.
inline const DataConfig* data_of(const ExperimentConfig& config) {
  return std::visit(
      [](const auto& task) -> const DataConfig* {
        if constexpr (requires { task.data; }) return &task.data;
        return nullptr;
      },
      config.task);
}
inline DataConfig* data_of(ExperimentConfig& config) { return const_cast<DataConfig*>(data_of(std::as_const(config))); }

// The table of keys.

// The keys of a config in the order in which they are dumped. They refer to `config`.
std::vector<Field> fields_of(ExperimentConfig& config);

struct Row {
  std::string path;  // "train.learning_rate"; "train.schedule" for a key with kinds
  Field field;
};

// All keys of the chosen kinds, but not the sections that contain them. They refer to `config`.
std::vector<Row> rows_of(ExperimentConfig& config);

// Paths.

// The path with train.seed in place of {seed}. The config keeps the path as it was written, so that runs with other
// seeds have the same config.
std::string with_seed(std::string path, const TrainConfig& train);

// The data section of a classifier, with train.seed in place of {seed}.
LabelledDataConfig labelled_data(const ExperimentConfig& config);

// The keys that hold a PathText ("data.validation_path"), in the order of the config. The values point into `config`;
// nullptr if there is no path.
std::vector<std::pair<std::string, PathText*>> paths_in(ExperimentConfig& config);

// The keys of files and folders in the section `data` that both configs have, with different paths.
std::vector<std::string> moved_data(ExperimentConfig before, ExperimentConfig now);

// Whether the key is that of a file or folder in the section `data`, which may be moved after training. The tokenizer's
// path is no such key, because checkpoints contain their tokenizer.
bool is_data_path(ExperimentConfig config, const std::string& key);

// Defaults that depend on other keys. Each is used if no source of the config sets its key.

// train.schedule.floor: a rate below the usual floor falls to a tenth of itself.
// data.tokenizer.whitespace: kept for the task language_model.
// model.embedding.scale: default_embedding_scale.
// train.cpu_slices: default_slices.
void derive_defaults(ExperimentConfig& config, const Provenance& provenance);

// sqrt_width where sinusoids, of amplitude 1, are added to embeddings that start much smaller (2017); else none.
EmbeddingScale default_embedding_scale(const ModelConfig& model);

// Sets model.embedding.scale; does nothing for a model without positions.
void set_embedding_scale(ModelConfig& model, EmbeddingScale scale);

// The number of slices: the tokens of a training batch times the width, divided by 384 x 128, at least 1 and at most 8.
// It depends only on the config, so that a run has the same bytes on every machine. Labelled texts and pairs, which are
// padded, count as a quarter of the context. 1 where the gradients of all slices would take too much memory (models
// wider than 384; n-grams) or cannot be had (regions, bags).
std::int64_t default_slices(const ExperimentConfig& config);

}  // namespace metaformer
