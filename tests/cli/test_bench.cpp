// `bench`: its rows, its JSON, and its errors.

#include "cli/program.h"

TEST_CASE("bench step reports a step's time by phase, and saves nothing", "[cli]") {
  const Program program;
  const Arguments bench = "bench step --config small.yaml --device cpu --rounds 2 --warmup 0";
  const auto json = program.json(bench, "--steps 2");
  const auto number = [&](const char* key) { return json.at(key).get<double>(); };
  CHECK(number("ms_per_step") > 0);
  for (const auto* phase : {"batch", "forward", "backward", "reduce", "clip", "update"})
    CHECK(json.at("phases").at(phase) >= 0);
  CHECK(number("tokens_per_second") > 0);
  CHECK(number("share_of_peak") ==
        Approx(number("operations_per_step") / number("ms_per_step") * 1e-6 / number("product_peak_gflops")));
  CHECK(number("peak_memory_bytes") > 1e6);
  CHECK(json.at("fast_paths").at("attention").at("taken") == true);
  CHECK_FALSE(program.has("runs"));
  CHECK_THAT(program.succeed(bench, "--steps 1"), ContainsSubstring("backward"));
  program.refuse(joined(bench, "--steps 0"), 2);
}

TEST_CASE("bench step stops at the first signal", "[cli]") {
  const Program program;
  const auto pid = program.start("bench step --config small.yaml --steps 1000000 --rounds 1000000");
  wait_until([&] { return program.read("err").find("median of") != std::string::npos; });
  kill(pid, SIGINT);
  CHECK(program.wait(pid).code == 130);  // otherwise it would run for hours
}

TEST_CASE("bench measures kernels and every mixer, and a wrong request is an error that names the fault", "[cli]") {
  const Program program;
  const Arguments kernels = "bench kernels --batch 1 --context 8 --rounds 1";
  CHECK_THAT(program.succeed(kernels), ContainsSubstring("linear layer"));
  CHECK(program.json(kernels, "--precision bf16").at("results").at(0).at("kernel") == "attention");
  program.refuse(joined(kernels, "--precision fp16"), 2, {"expected fp32 or bf16"});
  const Arguments small = "bench attention --batch 1 --heads 2 --head-width 8 --rounds 1";
  const auto json = program.json(small, "--context 16 32 --pair-table");
  constexpr int kinds = 21, with_reference = 5, pair_tables = 1;
  CHECK(json.at("results").size() == 2 * (kinds + with_reference + pair_tables));
  CHECK(json.at("core") == false);
  for (const auto& result : json.at("results")) {
    if (result.at("mixer") == "fourier") {
      CHECK_THAT(result.at("skipped").get<std::string>(), ContainsSubstring("--all-pairs"));
      continue;
    }
    CHECK(result.at("ms") >= 0);
    CHECK(result.at("timed_by") == "clock");
  }
  CHECK(program.json(small, "--mixer fourier --all-pairs").at("results").at(0).at("error") < 1e-5);
  CHECK_THAT(program.succeed(small, "--mixer metric --precision bf16 --direction forward"),
             ContainsSubstring("composed") && ContainsSubstring("reference"));
  for (const auto& [more, text] : std::vector<std::pair<Arguments, std::string>>{
           {"--mixer metrik", "did you mean 'metric'?"},
           {"--backend fast", "--backend fast: expected composed, reference, fused, library or fused_short"},
           {"--mixer metric --backend fused --device cpu", "CUDA"},
           {"--mixer identity --backend fused", "quadratic and metric"},
           {"--precision fp8", "--precision fp8: expected fp32, bf16, tf32 or fp16"},
           {"--backend library", "--core"},
           {"--backend fused_short", "--core"},
           {"--core --backend fused_short --mixer metric", "fused_short"},
           {"--positions learned", "--positions learned:|rotary|t5"},
           {"--positions t5 --core", "--core"},
           {"--core --backend library --mixer metric", "scaled_dot_product"}}) {
    CAPTURE(more);
    program.refuse(joined(small, more), 2, {text});
  }
}

TEST_CASE("bench attention measures positions that act on scores, with results as in the formula", "[cli]") {
  const Program program;
  const std::string positions = GENERATE("rotary", "alibi", "t5", "shaw", "transformer_xl");
  const auto json = program.json(
      "bench attention --batch 1 --heads 2 --head-width 8 --rounds 1 --context 24 --device cpu --positions " +
      positions);
  CHECK(json.at("positions") == positions);
  int measured = 0;
  for (const auto& result : json.at("results")) {
    const std::string mixer = result.at("mixer");
    const bool can =
        mixer == "scaled_dot_product" || mixer == "quadratic" || mixer == "metric" || mixer == "differential";
    CHECK(result.contains("skipped") != can);
    measured += can && result.at("error") < 1e-5;
  }
  CHECK(measured == 4 * 2);  // each also with the backend reference
}

TEST_CASE("bench attention --core excludes projections, and has separate rows for the library's attention", "[cli]") {
  const Program program;
  const Arguments small =
      "bench attention --core --batch 1 --heads 2 --head-width 8 --context 16 --rounds 1 --device cpu";
  const auto json = program.json(small, "--precision tf32");
  CHECK((json.at("core") == true && json.at("precision") == "tf32"));
  for (const auto* key : {"batch", "heads", "context", "head_width", "ms", "teraflops", "peak_bytes", "kept_bytes"})
    CHECK(json.at("results").at(0).at(key).is_number());
  CHECK(program.json(small, "--mixer scaled_dot_product --backend library").at("results").size() == 2);
  CHECK(program.json(small, "--mixer metric --pair-table --direction forward --all-pairs").at("results").size() == 3);
  for (const auto& row : program.json(small, "--mixer quadratic --own-values --backend composed").at("results"))
    CHECK(row.at("error") < 1e-5);
  const auto backward = program.json(small, "--mixer metric --backend composed --direction backward");
  CHECK((backward.at("direction") == "backward" && backward.at("results").at(0).at("ms").is_number()));
  program.refuse(joined(small, "--direction back"), 2, {"expected both, forward or backward"});
}
