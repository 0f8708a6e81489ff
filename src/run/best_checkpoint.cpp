#include "run/best_checkpoint.h"

#include "base/log.h"
#include "run/checkpoint.h"

namespace metaformer {

namespace {

// What is wrong with it; "" when it is whole.
std::string problem_of(const RunDirectory& run, std::int64_t step) {
  std::error_code ignored;
  if (!std::filesystem::exists(run.checkpoints() / step_name(step), ignored)) return "it is no longer there";
  try {
    load_checkpoint(run, step_name(step), WithOptimizer::no);
    return "";
  } catch (const NewerFormat&) {
    throw;
  } catch (const Error& error) {
    return error.what();
  }
}

BestSoFar result_of(const SelectionError& error_of, const Progress& progress) {
  return {.step = progress.step,
          .loss = progress.validation.at("loss").get<double>(),
          .error = error_of(progress.validation)};
}

std::optional<BestSoFar> find_best(const RunDirectory& run, const SelectionError& error_of, const Progress& now) {
  std::optional<BestSoFar> best;
  for (const auto& [step, saved] : saved_progress(run.checkpoints())) {
    const bool counts = saved && step > 0 && step <= now.step && is_evaluated(*saved) && !is_abandoned(*saved, now);
    if (!counts || !problem_of(run, step).empty()) continue;
    const auto result = result_of(error_of, *saved);
    if (!best || result.error <= best->error) best = result;  // of equal ones the first that was reached
  }
  return best;
}

}  // namespace

void require_best_checkpoint(const RunDirectory& run, const SelectionError& error_of, Progress& progress) {
  if (!progress.best || progress.best->step == progress.step) return;
  const auto name = step_name(progress.best->step);
  const auto problem = problem_of(run, progress.best->step);
  if (problem.empty()) return;
  progress.best = find_best(run, error_of, progress);
  if (progress.best) {
    log::warning("the best checkpoint, {}, cannot be used: {}; the best of those that are left is {}", name, problem,
                 step_name(progress.best->step));
    return;
  }
  log::warning("the best checkpoint, {}, cannot be used: {}; the next evaluation starts the choice again", name,
               problem);
  progress.evaluated_step = 0;
  progress.evaluations_since_best = 0;
  progress.validation = nullptr;
}

}  // namespace metaformer
