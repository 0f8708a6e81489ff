#include "cli/beam_flags.h"

#include <fmt/format.h>

#include "base/error.h"
#include "cli/command_line.h"

namespace metaformer {

void add_beam_to(CLI::App& command, BeamOptions& beam) {
  command.add_option("--beam", beam.beam, "sequence_to_sequence: hypotheses that are kept; 1: greedy")
      ->transform(whole_number(1, std::int64_t{1} << 20))
      ->capture_default_str();
  command.add_option("--alpha", beam.alpha, "of the length penalty ((5 + tokens) / 6)^alpha; 0: plain probabilities")
      ->transform(number_in(between(0, 10)))
      ->capture_default_str();
  command.add_option("--further-tokens", beam.further_tokens, "tokens that a target may have more than its source")
      ->transform(whole_number(0, std::int64_t{1} << 20))
      ->capture_default_str();
}

std::vector<std::string> given_beam_flags(const CLI::App& command) {
  return given_flags(command, {"--beam", "--alpha", "--further-tokens"});
}

std::vector<std::string> given_flags(const CLI::App& command, const std::vector<std::string>& names) {
  std::vector<std::string> given;
  for (const auto& name : names)
    if (command.count(name) > 0) given.push_back(name);
  return given;
}

void require_no_flags(const std::vector<std::string>& given, const LoadedRun& run) {
  if (!given.empty())
    throw Error(ExitCode::usage,
                fmt::format("{}: has no meaning for --run {}, whose task is {}: leave it out", given.front(),
                            run.directory.path().string(), kind_of(run.experiment.config.task)));
}

}  // namespace metaformer
