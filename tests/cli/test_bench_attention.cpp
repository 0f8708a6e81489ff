// `bench attention`: its rows, its JSON, and what it says of a wrong request.

#include "cli/program.h"

TEST_CASE("bench attention measures every mixer, and says what is wrong with a request", "[cli]") {
  const Program program;
  const Arguments small = {"bench", "attention", "--batch", "1", "--heads", "2", "--head-width", "8", "--rounds", "1"};
  const auto with = [&](Arguments more) {
    more.insert(more.begin(), small.begin(), small.end());
    return more;
  };
  const auto json = nlohmann::json::parse(program.succeed(with({"--context", "16", "32", "--pair-table", "--json"})));
  CHECK(json.at("results").size() == 2 * (4 * 2 + 3 + 1));
  CHECK(json.at("core") == false);
  for (const auto& result : json.at("results")) {
    CHECK(result.at("ms").get<double>() >= 0);
    CHECK(result.at("timed_by") == "clock");
  }
  CHECK_THAT(program.succeed(with({"--mixer", "metric", "--precision", "bf16", "--direction", "forward"})),
             ContainsSubstring("composed") && ContainsSubstring("reference"));
  const auto complaint = [&](const Arguments& more) {
    const auto result = program.run(with(more));
    CHECK(result.code == 2);
    return result.err;
  };
  CHECK_THAT(complaint({"--mixer", "metrik"}), ContainsSubstring("did you mean 'metric'?"));
  CHECK_THAT(complaint({"--backend", "fast"}), ContainsSubstring("expected composed, reference, fused or library"));
  CHECK_THAT(complaint({"--mixer", "metric", "--backend", "fused", "--device", "cpu"}),
             ContainsSubstring("they run on CUDA devices") || ContainsSubstring("built without CUDA"));
  CHECK_THAT(complaint({"--mixer", "identity", "--backend", "fused"}),
             ContainsSubstring("only quadratic and metric have fused"));
  CHECK_THAT(complaint({"--precision", "fp8"}), ContainsSubstring("expected fp32, tf32, bf16 or fp16"));
  CHECK_THAT(complaint({"--backend", "library"}), ContainsSubstring("needs --core"));
  CHECK_THAT(complaint({"--positions", "learned"}), ContainsSubstring("expected none, rotary, alibi, t5, shaw or "));
  CHECK_THAT(complaint({"--positions", "t5", "--core"}), ContainsSubstring("leave out --core"));
  CHECK_THAT(complaint({"--core", "--backend", "library", "--mixer", "metric"}),
             ContainsSubstring("only scaled_dot_product has library"));
}

TEST_CASE("bench attention measures positions that act on scores, each right beside the formula", "[cli]") {
  const Program program;
  const std::string positions = GENERATE("rotary", "alibi", "t5", "shaw", "transformer_xl");
  const auto json = nlohmann::json::parse(
      program.succeed({"bench", "attention", "--batch", "1", "--heads", "2", "--head-width", "8", "--rounds", "1",
                       "--context", "24", "--device", "cpu", "--positions", positions, "--json"}));
  CHECK(json.at("positions") == positions);
  int measured = 0;
  for (const auto& result : json.at("results")) {
    const std::string mixer = result.at("mixer");
    CAPTURE(positions, mixer);
    const bool can = mixer == "scaled_dot_product" || mixer == "quadratic" || mixer == "metric";
    CHECK(result.contains("skipped") != can);
    if (!can) continue;
    ++measured;
    CHECK(result.at("error").get<double>() < 1e-5);
  }
  CHECK(measured == 6);
}

TEST_CASE("bench attention --core leaves out projections, and has the library's attention in rows of its own",
          "[cli]") {
  const Program program;
  const Arguments small = {"bench", "attention", "--core", "--batch",  "1", "--heads",  "2",   "--head-width",
                           "8",     "--context", "16",     "--rounds", "1", "--device", "cpu", "--json"};
  const auto json = [&](Arguments more) {
    more.insert(more.begin(), small.begin(), small.end());
    return nlohmann::json::parse(program.succeed(more));
  };
  const auto rows = json({"--precision", "tf32"});
  CHECK(rows.at("core") == true);
  CHECK(rows.at("precision") == "tf32");
  std::vector<std::string> backends;
  for (const auto& row : rows.at("results")) {
    if (row.at("mixer") == "scaled_dot_product") backends.push_back(row.at("backend"));
    for (const auto* key : {"batch", "heads", "context", "head_width", "ms", "teraflops", "peak_bytes", "kept_bytes"})
      CHECK(row.at(key).is_number());
    CHECK(row.at("timed_by") == "clock");
    CHECK((row.at("error").is_number() || row.at("mixer") == "none"));
  }
  CHECK(backends == std::vector<std::string>{"composed", "reference", "library_flash", "library_math"});
  CHECK(json({"--mixer", "scaled_dot_product", "--backend", "library"}).at("results").size() == 2);
  CHECK(json({"--mixer", "metric", "--pair-table", "--direction", "forward", "--all-pairs"}).at("results").size() == 3);
}
