#include <algorithm>
#include <chrono>
#include <cstdio>
#include <numeric>

#include "base/files.h"
#include "base/log.h"
#include "base/rows.h"
#include "base/signals.h"
#include "base/utf8.h"
#include "cli/command_line.h"
#include "data/list_dataset.h"
#include "infer/answers.h"
#include "infer/sampling.h"
#include "report/inspection.h"
#include "text/special_tokens.h"

namespace metaformer {

namespace {

using Row = std::vector<double>;

// The attention, mean over layers and heads; a row for each token that is written.
std::vector<Row> mean_attention(const TextInspection& cross) {
  std::vector<torch::Tensor> layers;
  for (const auto& layer : cross.layers) layers.push_back(layer.attention_nce.mean(0));
  const auto mean_ce = torch::stack(layers).mean(0);
  std::vector<Row> rows;
  for (const auto& row_e : mean_ce.unbind()) rows.push_back(to_vector(row_e));
  return rows;
}

std::string largest_of(const Row& weights, const std::vector<std::string>& tokens) {
  constexpr std::size_t most = 3;
  constexpr double smallest = 0.05;
  std::vector<std::size_t> order(weights.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, std::greater{}, [&](auto i) { return weights[i]; });
  std::string text;
  for (std::size_t i = 0; i < std::min(most, order.size()) && weights[order[i]] >= smallest; ++i)
    text += fmt::format("  {} {:.2f}", trim(tokens[order[i]]), weights[order[i]]);
  return text;
}

// Calls read(); its errors then name the prompt.
std::vector<std::int32_t> read_prompt(const std::string& prompt,
                                      const std::function<std::vector<std::int32_t>()>& read) try {
  return read();
} catch (const Error& error) {
  fail_usage("prompt {}: {}", in_quotes(prompt), error.what());
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Prints the best target for a source, and to which tokens of the source each of its tokens attends most; with `json`
// all weights, means over layers and heads. Errors: exit code 2, the source cannot be read; 4, numbers are not finite.
void show_target(const LoadedRun& run, const std::string& source, const BeamOptions& options, bool json) {
  bool cut = false;
  const auto ids =
      read_prompt(source, [&] { return target_answers(run, options).encode(without_last_break(source), cut); });
  if (cut) log::warning("the source is longer than the model's context and is cut to its first {} tokens", ids.size());
  const auto start = std::chrono::steady_clock::now();
  const auto best = write_target(run, ids, options);
  const double seconds = seconds_since(start);
  const auto cross = inspect_pair(run, {.source = ids, .target = best.ids}, {.tokens = most_inspected_tokens}).back();
  const auto attention = mean_attention(cross);
  const auto text = run.codec.tokenizer->decode(best.ids);
  if (json)
    return print_json({{"prompt", source},
                       {"cut", cut},
                       {"text", text},
                       {"tokens", best.ids.size()},
                       {"log_probability", best.log_probability},
                       {"score", best.score},
                       {"seconds", seconds},
                       {"tokens_per_second", static_cast<double>(best.ids.size()) / seconds},
                       {"source_tokens", cross.keys},
                       {"target_tokens", cross.tokens},
                       {"attention", attention},
                       {"checkpoint", run.checkpoint.string()}});
  std::string shown =
      text + "\n\ngenerated tokens, and the source tokens they attend to (mean over layers and heads)\n";
  for (std::size_t i = 0; i < attention.size(); ++i)
    shown += fmt::format("{:<16}{}\n", trim(cross.tokens[i]), largest_of(attention[i], cross.keys));
  print(shown);
  log::info("{} tokens in {:.2f} s: {} tokens/s", best.ids.size(), seconds,
            human_count(static_cast<double>(best.ids.size()) / seconds));
}

constexpr std::uintmax_t longest_prompt = 1 << 26;
constexpr std::int64_t most_tokens = std::int64_t{1} << 40;

struct SampleArguments {
  RunChoice choice;
  std::optional<std::string> prompt;
  std::string prompt_file;
  bool interactive = false;
  std::int64_t samples = 1;
  std::optional<std::int64_t> tokens;
  std::optional<double> temperature;
  SamplingOptions options;
  WeightPrecision precision = WeightPrecision::fp32;
  std::vector<std::string> stops;
  bool without_eos = false, json = false;
  BeamOptions beam;
  std::vector<std::string> beam_flags, next_token_flags;  // those on the command line
};

struct Sample {
  std::string text;
  std::int64_t tokens = 0;
  bool stopped = false;  // by a stop text
  bool ended = false;    // by a token that ends texts
};

// The decoder for all prompts; nullptr: every prompt gets its own, in float32. Errors (exit code 2): the precision has
// no effect on this run.
std::unique_ptr<Decoder> chosen_decoder(const SampleArguments& arguments, const LoadedRun& run) {
  if (arguments.precision == WeightPrecision::fp32) return nullptr;
  const auto flag = fmt::format("--precision {}", to_string(arguments.precision));
  if (!run.device.is_cpu())
    fail_usage("{}: on device {} texts are generated in float32; leave it out, or add --device cpu", flag,
               run.device.str());
  if (!arguments.options.cached)
    fail_usage("{}: has no effect with --no-cache, which computes every token in float32; leave one out", flag);
  auto decoder = run.model->decoder(arguments.samples, arguments.precision);
  if (decoder == nullptr)
    fail_usage("{}: has no effect on this model, which has no decoder (docs/performance.md); leave it out", flag);
  return decoder;
}

// Answers prompts with one model. A model of lists answers with as many numbers as the prompt has, by default the
// likeliest.
class Sampler {
 public:
  Sampler(const SampleArguments& arguments, const LoadedRun& run)
      : arguments_(arguments),
        run_(run),
        lists_(list_task(run.experiment.config.task)),
        decoder_(chosen_decoder(arguments, run)) {
    constexpr std::int64_t usual_tokens = 500;
    tokens_ = lists_ ? lists_->length : arguments.tokens.value_or(usual_tokens);
    options_ = arguments.options;
    options_.temperature = arguments.temperature.value_or(lists_ ? 0.0 : options_.temperature);
    options_.never = ids_without_token(*run.codec.tokenizer);
    if (!arguments.without_eos) eos_ = special_tokens_of(*run.codec.tokenizer).eos;
  }

  void answer(const std::string& prompt) {
    const auto ids = encode(prompt);
    const auto cut = prompt_cut(*run_.model, ids.size());
    if (!cut.empty()) log::warning("{}", cut);
    const bool streams = arguments_.samples == 1 && !arguments_.json;
    const auto shown_prompt = lists_ ? "" : prompt + run_.codec.tokenizer->token_separator();
    if (streams) print(shown_prompt);
    const auto start = std::chrono::steady_clock::now();
    TextGenerator generator(*run_.model, ids, options_, run_.device, arguments_.samples, {}, decoder_);
    const auto samples = generate(generator, streams);
    if (arguments_.json) print_as_json(prompt, !cut.empty(), samples, seconds_since(start), generator.cache_bytes());
    if (streams) print("\n");
    for (std::size_t s = 0; s < samples.size() && !arguments_.json && !streams; ++s)
      print(std::string(s > 0 ? "---------------\n" : "") + shown_prompt + samples[s].text + "\n");
    throw_if_stopped();
  }

 private:
  std::vector<std::int32_t> encode(const std::string& prompt) const {
    const auto ids = read_prompt(prompt, [&] {
      const auto encoded = run_.codec.tokenizer->encode(prompt);
      return lists_ ? list_prompt(*lists_, encoded) : encoded;
    });
    if (ids.empty()) fail_usage("prompt {}: it holds no token", in_quotes(prompt));
    return ids;
  }

  std::vector<Sample> generate(TextGenerator& generator, bool streams) const {
    std::vector<Sample> samples(static_cast<std::size_t>(arguments_.samples));
    std::vector<StopFilter> filters(samples.size(), StopFilter(arguments_.stops));
    const auto show = [&](Sample& sample, const std::string& part) {
      sample.text += part;
      if (streams) print(part);
    };
    std::size_t running = samples.size();
    for (std::int64_t i = 0; i < tokens_ && running > 0 && stop_signal() == 0; ++i) {
      const auto& tokens = generator.next();
      for (std::size_t s = 0; s < samples.size(); ++s) {
        auto& sample = samples[s];
        if (sample.stopped || sample.ended) continue;
        sample.ended = std::ranges::find(eos_, tokens[s]) != eos_.end();
        if (!sample.ended) {
          const auto separator = sample.tokens++ > 0 ? run_.codec.tokenizer->token_separator() : "";
          show(sample, filters[s].feed(separator + run_.codec.tokenizer->decode({&tokens[s], 1})));
          sample.stopped = filters[s].stopped();
        }
        running -= sample.stopped || sample.ended;
      }
    }
    for (std::size_t s = 0; s < samples.size(); ++s) show(samples[s], filters[s].rest());
    return samples;
  }

  void print_as_json(const std::string& prompt, bool cut, const std::vector<Sample>& samples, double seconds,
                     std::int64_t cache_bytes) const {
    std::vector<nlohmann::ordered_json> list;
    std::int64_t tokens = 0;
    for (const auto& sample : samples) {
      list.push_back(
          {{"text", sample.text}, {"tokens", sample.tokens}, {"stopped", sample.stopped}, {"ended", sample.ended}});
      tokens += sample.tokens;
    }
    const auto& first = samples.front();
    print_json({{"prompt", prompt},
                {"cut", cut},
                {"text", first.text},
                {"tokens", tokens},
                {"stopped", first.stopped},
                {"ended", first.ended},
                {"interrupted", stop_signal() != 0},
                {"samples", list},
                {"seconds", seconds},
                {"tokens_per_second", static_cast<double>(tokens) / seconds},
                {"cache_bytes", cache_bytes},
                {"checkpoint", run_.checkpoint.string()}});
  }

  const SampleArguments& arguments_;
  const LoadedRun& run_;
  std::optional<ListTask> lists_;
  std::int64_t tokens_;
  SamplingOptions options_;
  std::vector<std::int32_t> eos_;  // any of them ends a text
  std::shared_ptr<Decoder> decoder_;
};

using AnswerPrompt = std::function<void(const std::string&)>;

void converse(const AnswerPrompt& answer) {
  const bool invites = isatty(STDIN_FILENO) != 0;
  LineReader reader(STDIN_FILENO, "standard input", longest_prompt);
  for (;;) {
    if (invites) std::fputs("> ", stderr);
    const auto line = reader.next();
    if (!line) break;
    try {  // a mistake in one prompt ends neither the conversation nor the list
      if (line->too_long) fail_usage("the prompt is too long");
      answer(line->text);
    } catch (const Error& error) {
      if (error.code() != ExitCode::usage) throw;
      log::warning("line {}: {}", line->number, error.what());
    }
  }
  if (invites) std::fputs("\n", stderr);
}

bool is_asked(const SampleArguments& arguments) {
  return arguments.interactive || arguments.prompt || !arguments.prompt_file.empty();
}

// Checks the flags and prompts for a model that predicts next tokens.
void check(const SampleArguments& arguments, const LoadedRun& run) {
  const auto& task = run.experiment.config.task;
  if (is<ClassificationConfig>(task))
    fail_usage("--run {}: its task is classification; use metaformer predict", run.directory.path().string());
  if (!continues_text(task))
    fail_usage("--run {}: its task is {}, which predicts no next token and cannot continue a text",
               run.directory.path().string(), kind_of(task));
  require_no_flags(arguments.beam_flags, run);
  const auto& model = run.experiment.config.model;
  if (run.model->has_endless_state() && arguments.options.window != WindowKind::half) {
    auto what = fmt::format("model.kind {}", kind_of(model));
    if (is<TransformerConfig>(model)) what = run.model->remembers() ? "model.memory" : "states of fixed size";
    fail_usage("--window {}: has no effect on a model with {}, which goes on past its context without a cut",
               to_string(arguments.options.window), what);
  }
  const auto lists = list_task(task);
  if (lists && arguments.tokens)
    fail_usage("--tokens: a model of lists answers with as many numbers as the prompt has");
  if (lists && !is_asked(arguments))
    fail_usage("--prompt is missing: {} numbers to {}, such as --prompt \"2 3 1 ...\"", lists->length, kind_of(task));
}

void answer_prompts(const SampleArguments& arguments, const LoadedRun& run, const AnswerPrompt& answer) {
  const auto& file = arguments.prompt_file;
  if (arguments.interactive) return converse(answer);
  if (file.empty())
    return answer(arguments.prompt ? std::string(without_byte_order_mark(*arguments.prompt))
                                   : default_prompt(*run.codec.tokenizer));
  auto prompt = read_file(file, longest_prompt, ExitCode::usage);
  drop_byte_order_mark(prompt);
  try {
    answer(prompt);
  } catch (const Error& error) {
    if (error.code() != ExitCode::usage) throw;
    fail_usage("{}: {}", file, error.what());
  }
}

void run_sample(const SampleArguments& arguments) {
  for (const auto& stop : arguments.stops)
    if (stop.empty()) fail_usage("--stop: must not be empty");
  const auto run = arguments.choice.load();
  if (is<SequenceToSequenceConfig>(run.experiment.config.task)) {
    require_no_flags(arguments.next_token_flags, run);
    if (!is_asked(arguments)) fail_usage("--prompt is missing: the source, a text to write a target for");
    return answer_prompts(arguments, run,
                          [&](const std::string& source) { show_target(run, source, arguments.beam, arguments.json); });
  }
  check(arguments, run);
  Sampler sampler(arguments, run);
  answer_prompts(arguments, run, [&](const std::string& prompt) { sampler.answer(prompt); });
}

void add_sampling_options(CLI::App& command, SampleArguments& arguments) {
  auto& options = arguments.options;
  command
      .add_option("--temperature", arguments.temperature,
                  "below 1: safer; above 1: more varied; 0: always the most likely token; default: 0.8, for a sorter 0")
      ->transform(number_in(between(0, 1e6)));
  add_whole_number(command, "--top-k", options.top_k, 0, most_tokens, "choose among the k most likely tokens; 0: all");
  command
      .add_option("--top-p", options.top_p,
                  "choose among the most likely tokens whose total probability reaches this; 1: all")
      ->capture_default_str()
      ->transform(number_in(between(1e-9, 1)));
  add_whole_number(command, "--seed", options.seed, 0, (std::int64_t{1} << 53) - 1,
                   "the same seed gives the same text");
  add_choice(command, "--precision", arguments.precision,
             "on the CPU, type of the weights from which tokens are generated; bf16 is faster for large models");
  add_choice(command, "--window", options.window,
             "tokens to forget when the model's context is full: the first half, or one token at a time");
  add_repeatable(command, "--stop", arguments.stops, "TEXT", "stop before this text");
  command.add_flag("--no-eos", arguments.without_eos, "continue after an end-of-text token (eos), and show it");
  command.add_flag_callback(
      "--no-cache", [&options] { options.cached = false; },
      "encode the whole window again for every token (slow, for comparison)");
}

}  // namespace

void add_sample_command(CLI::App& app) {
  auto& command = *app.add_subcommand(
      "sample",
      "generate text from a checkpoint, sort a list with a sorter, or translate a text and show its attention");
  auto arguments = std::make_shared<SampleArguments>();
  arguments->choice.add_to(command);
  arguments->choice.add_context_to(command);
  auto* prompt = may_be_empty(command.add_option(
      "--prompt", arguments->prompt, "text to continue (default: a line break), or source to generate a target for"));
  auto* file =
      command
          .add_option("--prompt-file", arguments->prompt_file,
                      "file with the prompt; a byte order mark is left out, and the line break at the end of a source")
          ->excludes(prompt);
  command.add_flag("--interactive", arguments->interactive, "answer every line of standard input, until Ctrl-D")
      ->excludes(prompt)
      ->excludes(file);
  command.add_option("--tokens", arguments->tokens, "tokens to generate; default: 500")
      ->transform(whole_number(0, most_tokens));
  add_whole_number(command, "--num-samples,--samples", arguments->samples, 1, std::int64_t{1} << 16,
                   "texts to generate at once, each with its own random numbers");
  add_sampling_options(command, *arguments);
  add_beam(command, arguments->beam);
  command.add_flag("--json", arguments->json, "one line of JSON per prompt at its end, instead of streaming");
  command.footer(
      "A prompt longer than the model's context is cut to its last tokens, a source to its first tokens.\n"
      "When the model's context is full, --window half forgets its first half, so that each token is predicted from\n"
      "half a context or more. --window slide forgets one token, as nanoGPT does, and predicts each token from the\n"
      "whole context, which is encoded again for every token: with 256 tokens 15 to 50 times slower.\n"
      "In a large model the time per token is the time to read the weights. --precision bf16 rounds those of linear\n"
      "layers to bfloat16, half as many bytes; the text may differ, unless they were bfloat16 numbers before.\n"
      "Prompts, and the rest of a context that was cut, are always encoded in float32.\n"
      "A run of task sequence_to_sequence generates one target, with --beam, --alpha and --further-tokens, and shows\n"
      "the source tokens that each of its tokens attends to.\n"
      "The text of an imported model ends before the end-of-text token (eos), if the model has one.\n"
      "Examples:\n"
      "  metaformer sample --prompt \"ROMEO:\" --tokens 1000\n"
      "  metaformer sample --run runs/x --temperature 0 --stop \"JULIET:\"\n"
      "  metaformer sample --prompt-file start.txt --num-samples 4 --json\n"
      "  metaformer sample --run runs/gpt2 --precision bf16 --device cpu\n"
      "  metaformer sample --run runs/sorter --prompt \"2 0 1 1 0 2\"\n"
      "  metaformer sample --run runs/multi30k --prompt \"Ein Hund läuft durch das Gras.\" --beam 4");
  command.callback([arguments, &command] {
    auto only_of_beams = beam_flags;
    std::erase(only_of_beams, "--no-graph");
    arguments->beam_flags = given_flags(command, only_of_beams);
    arguments->next_token_flags =
        given_flags(command, {"--tokens", "--num-samples", "--temperature", "--top-k", "--top-p", "--seed",
                              "--precision", "--window", "--stop", "--no-eos", "--no-cache"});
    arguments->options.graphs = arguments->beam.graphs;
    run_sample(*arguments);
  });
}

}  // namespace metaformer
