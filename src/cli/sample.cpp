#include <fmt/format.h>

#include <chrono>

#include "cli/command_line.h"
#include "core/error.h"
#include "core/signals.h"
#include "train/run.h"
#include "train/sampling.h"

namespace metaformer {

namespace {

struct SampleArguments {
  RunChoice choice;
  std::string prompt;
  std::int64_t tokens = 500;
  SamplingOptions options;
  std::vector<std::string> stops;
  bool uncached = false;
  bool json = false;
};

// Without a prompt: a line break, as nanoGPT starts, or the first token of a vocabulary that has none.
std::string default_prompt(const Tokenizer& tokenizer) {
  try {
    tokenizer.encode("\n");
    return "\n";
  } catch (const Error&) {
    return tokenizer.decode(std::vector<std::int32_t>{0});
  }
}

std::vector<std::int32_t> encode_prompt(const Tokenizer& tokenizer, const std::string& prompt) {
  try {
    return tokenizer.encode(prompt);
  } catch (const Error& error) {
    throw Error(ExitCode::usage, fmt::format("--prompt: {}", error.what()));
  }
}

void run_sample(SampleArguments& arguments) {
  for (const auto& stop : arguments.stops)
    if (stop.empty()) throw Error(ExitCode::usage, "--stop: must not be empty");
  const auto run = load_run(arguments.choice.run, arguments.choice.checkpoint, arguments.choice.device);
  if (arguments.prompt.empty()) arguments.prompt = default_prompt(*run.tokenizer);
  const auto prompt = encode_prompt(*run.tokenizer, arguments.prompt);
  arguments.options.cached = !arguments.uncached;
  TextGenerator generator(*run.model, prompt, arguments.options, run.device);
  StopFilter filter(arguments.stops);
  std::string text;
  const auto show = [&](const std::string& part) {
    text += part;
    if (!arguments.json) print(part);
  };
  if (!arguments.json) print(arguments.prompt);
  const auto start = std::chrono::steady_clock::now();
  std::int64_t generated = 0;
  for (; generated < arguments.tokens && !filter.stopped() && stop_signal() == 0; ++generated)
    show(filter.feed(run.tokenizer->decode(std::vector{generator.next()})));
  show(filter.rest());
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!arguments.json) {
    print("\n");
  } else {
    print_json({{"prompt", arguments.prompt},
                {"text", text},
                {"tokens", generated},
                {"stopped", filter.stopped()},
                {"seconds", seconds},
                {"tokens_per_second", static_cast<double>(generated) / seconds},
                {"cache_bytes", generator.cache_bytes()},
                {"checkpoint", run.checkpoint.string()}});
  }
  if (const int signal = stop_signal()) throw Interrupted(signal);
}

}  // namespace

void add_sample_command(CLI::App& app) {
  auto& command = *app.add_subcommand("sample", "generate text from a checkpoint");
  auto arguments = std::make_shared<SampleArguments>();
  auto& options = arguments->options;
  arguments->choice.add_to(command);
  command.add_option("--prompt", arguments->prompt, "text to start from; default a line break");
  command.add_option("--tokens", arguments->tokens, "tokens to generate")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
  command
      .add_option("--temperature", options.temperature, "below 1 safer, above 1 wilder, 0 always the likeliest token")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 1e6));
  command.add_option("--top-k", options.top_k, "choose among the k likeliest tokens; 0: all")
      ->capture_default_str()
      ->check(CLI::Range(std::int64_t{0}, std::int64_t{1} << 40));
  command.add_option("--top-p", options.top_p, "choose among the likeliest tokens that hold this share")
      ->capture_default_str()
      ->check(CLI::Range(1e-9, 1.0));
  command.add_option("--seed", options.seed, "the same seed gives the same text")->capture_default_str();
  command.add_option("--stop", arguments->stops, "end before this text; may be repeated")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  command.add_flag("--no-cache", arguments->uncached, "encode the whole window for every token (slow, for comparison)");
  command.add_flag("--json", arguments->json, "one line of JSON on stdout when done, instead of streaming");
  command.footer(
      "Past the model's context, the last half of it is kept and encoded again.\n"
      "Examples:\n"
      "  metaformer sample --prompt \"ROMEO:\" --tokens 1000\n"
      "  metaformer sample --run runs/x --temperature 0 --stop \"JULIET:\"");
  command.callback([arguments] { run_sample(*arguments); });
}

}  // namespace metaformer
