#include <algorithm>
#include <initializer_list>
#include <limits>
#include <string>

#include "base/error.h"
#include "cuda/random_bits.h"
#include "cuda/residual_norm.h"
#include "cuda/rows.h"

namespace metaformer::cuda {

namespace {

constexpr int norm_threads = 256, norm_warps = norm_threads / gpu::warp_size;
constexpr int columns_of_warp = columns_of_lane * gpu::warp_size;  // in a group

// The arguments and constants of every thread.
struct NormRule {
  ResidualNorm in;
  DropRule drop;
  bool drops = false;
  bool aligned = false;          // all rows, to four entries
  bool aligned_weights = false;  // gain and bias, likewise
};

struct NormBackwardRule {
  NormRule forward;
  ResidualNormBackward in;
  std::int64_t parts = 0;  // of the partial sums; one for each block
};

// Rows of a block, each of which belongs to Team warps. A lane has Groups groups of four neighbouring columns, so that
// a warp loads and stores whole stretches of memory.
template <int Team, int Groups>
class RowTeam {
 public:
  static constexpr int teams = norm_warps / Team;                  // of a block
  static constexpr int columns = Team * Groups * columns_of_warp;  // at most
  // Bytes: the sums of a row's warps in forward; in backward a row of sums for each team.
  static constexpr int forward_bytes = Team > 1 ? static_cast<int>(sizeof(float)) * norm_warps : 0;
  static constexpr int backward_bytes = static_cast<int>(sizeof(float)) * (Team > 1 ? 2 * norm_warps : teams * columns);
  static_assert(Team == 1 || Team == norm_warps);

  using Words = unsigned[Groups][4];
  using Values = float[Groups][4];

  GPU_DEVICE RowTeam(int width, unsigned char* memory) : width_(width), sums_(reinterpret_cast<float*>(memory)) {}

  GPU_DEVICE int number() const { return warp_index() / Team; }
  GPU_DEVICE int column(int g) const {
    return ((g * Team + warp_index() % Team) * gpu::warp_size + lane_index()) * columns_of_lane;
  }
  GPU_DEVICE bool exists(int g, int i) const { return column(g) + i < width_; }

  // use(g, i) for every entry that the lane has, also for those beyond the width.
  template <class Use>
  GPU_DEVICE void for_each(Use use) const {
    GPU_UNROLL
    for (int g = 0; g < Groups; ++g) {
      GPU_UNROLL
      for (int i = 0; i < columns_of_lane; ++i) use(g, i);
    }
  }

  // Entries beyond the width become 0. Nothing waits for the memory until values() uses the words.
  template <class Format>
  GPU_DEVICE void load(Words& words, const void* rows, std::int64_t row, bool aligned) const {
    const auto* from = static_cast<const typename Format::Element*>(rows) + row * width_;
    for_each([&](int g, int i) { words[g][i] = 0; });
    if (gpu::aligned(aligned)) {
      GPU_UNROLL
      for (int g = 0; g < Groups; ++g)
        if (gpu::within(exists(g, 0))) load_four<Format>(words[g], from + column(g));
    } else {
      for_each([&](int g, int i) {
        if (gpu::within(exists(g, i))) put<Format>(words[g], i, from[column(g) + i]);
      });
    }
  }
  GPU_DEVICE void load(Words& words, const void* rows, RowElement element, std::int64_t row, bool aligned) const {
    with_format(element, [&]<class Format>() { load<Format>(words, rows, row, aligned); });
  }

  GPU_DEVICE void values(Values& x, const Words& words, RowElement element) const {
    with_format(element,
                [&]<class Format>() { for_each([&](int g, int i) { x[g][i] = entry_of<Format>(words[g], i); }); });
  }

  // As the type would store them.
  GPU_DEVICE void round(Values& x, RowElement element) const {
    with_format(element, [&]<class Format>() {
      for_each([&](int g, int i) { x[g][i] = Format::to_float(Format::from_float(x[g][i])); });
    });
  }

  GPU_DEVICE void load_floats(Values& x, const float* rows, std::int64_t row, bool aligned) const {
    Words words;
    load<Fp32>(words, rows, row, aligned);
    for_each([&](int g, int i) { x[g][i] = gpu::float_of(words[g][i]); });
  }

  template <class Format>
  GPU_DEVICE void store(const Values& x, void* rows, std::int64_t row, bool aligned) const {
    auto* to = static_cast<typename Format::Element*>(rows) + row * width_;
    if (gpu::aligned(aligned)) {
      GPU_UNROLL
      for (int g = 0; g < Groups; ++g)
        if (gpu::within(exists(g, 0))) store_four<Format>(to + column(g), x[g]);
    } else {
      for_each([&](int g, int i) {
        if (gpu::within(exists(g, i))) to[column(g) + i] = Format::from_float(x[g][i]);
      });
    }
  }
  GPU_DEVICE void store(const Values& x, void* rows, RowElement element, std::int64_t row, bool aligned) const {
    with_format(element, [&]<class Format>() { store<Format>(x, rows, row, aligned); });
  }

  // Makes each number the sum of those of the row's lanes, with the same bits in all of them.
  template <int Count>
  GPU_DEVICE void add_over_row(float (&x)[Count]) const {
    GPU_UNROLL
    for (int n = 0; n < Count; ++n) {
      GPU_UNROLL
      for (int other = 1; other < gpu::warp_size; other *= 2) x[n] += gpu::shuffle_xor(x[n], other);
    }
    if constexpr (Team > 1) {
      gpu::sync_threads();  // until all have read the sums of before
      GPU_UNROLL
      for (int n = 0; n < Count; ++n)
        if (lane_index() == 0) sums_[n * norm_warps + warp_index()] = x[n];
      gpu::sync_threads();
      GPU_UNROLL
      for (int n = 0; n < Count; ++n) {
        x[n] = 0;
        GPU_UNROLL
        for (int warp = 0; warp < norm_warps; ++warp) x[n] += sums_[n * norm_warps + warp];
      }
    }
  }

  // Stores the sums of the columns over the teams of the block.
  GPU_DEVICE void store_over_teams(const Values& x, float* to) const {
    if constexpr (teams == 1) {
      store<Fp32>(x, to, 0, /*aligned=*/false);
    } else {
      gpu::sync_threads();  // until all have read the sums of before
      GPU_UNROLL
      for (int g = 0; g < Groups; ++g) store_four<Fp32>(sums_ + number() * columns + column(g), x[g]);
      gpu::sync_threads();
      for (int column = gpu::thread_index(); gpu::within(column < width_); column += norm_threads) {
        float sum = 0;
        GPU_UNROLL
        for (int team = 0; team < teams; ++team) sum += sums_[team * columns + column];
        to[column] = sum;
      }
    }
  }

 private:
  int width_;
  float* sums_;  // in shared memory
};

// Multiplies the entries that dropout keeps by its factor, and makes the others 0.
template <int Team, int Groups>
GPU_DEVICE void drop_row(const RowTeam<Team, Groups>& team, float (&y)[Groups][4], const NormRule& rule,
                         std::int64_t row) {
  const auto& in = rule.in;
  const PlaceBits bits(in.key, rule.drop.mixed_number);
  const auto place = gpu::counter(stretch_from(in.places, row * in.width).place);
  GPU_UNROLL
  for (int g = 0; g < Groups; ++g) {
    const auto dropped = dropped_at<columns_of_lane>(bits, rule.drop.limit, place + team.column(g));
    GPU_UNROLL
    for (int i = 0; i < columns_of_lane; ++i)
      y[g][i] = (dropped >> i & 1) != 0 ? 0.0f : gpu::product(y[g][i], rule.drop.factor);
  }
}

// x' of a row.
template <int Team, int Groups>
GPU_DEVICE void add_residual(const RowTeam<Team, Groups>& team, float (&sum)[Groups][4], const NormRule& rule,
                             std::int64_t row) {
  using Row = RowTeam<Team, Groups>;
  const auto& in = rule.in;
  typename Row::Words words;
  team.load(words, in.y, in.y_element, row, rule.aligned);
  typename Row::Values x, y;
  team.for_each([&](int g, int i) { x[g][i] = 0; });
  if (in.x != nullptr) team.load_floats(x, in.x, row, rule.aligned);
  team.values(y, words, in.y_element);
  if (rule.drops) {
    drop_row(team, y, rule, row);
    team.round(y, in.y_element);
  }
  team.for_each([&](int g, int i) { sum[g][i] = x[g][i] + y[g][i]; });
}

// m and f of a row. The squares are of deviations from the mean, so that a large mean costs no accuracy.
struct RowMoments {
  float mean, factor;
};
template <int Team, int Groups>
GPU_DEVICE RowMoments moments_of(const RowTeam<Team, Groups>& team, const float (&x)[Groups][4],
                                 const ResidualNorm& in) {
  const auto width = static_cast<float>(in.width);
  float mean = 0;
  if (in.centred) {
    float sum[1] = {0};
    team.for_each([&](int g, int i) { sum[0] += x[g][i]; });
    team.add_over_row(sum);
    mean = sum[0] / width;
  }
  float squares[1] = {0};
  team.for_each([&](int g, int i) {
    const float from_mean = gpu::within(team.exists(g, i)) ? x[g][i] - mean : 0.0f;
    squares[0] += from_mean * from_mean;
  });
  team.add_over_row(squares);
  return {mean, gpu::reciprocal_root(squares[0] / width + in.epsilon)};
}

template <int Team, int Groups>
GPU_KERNEL(norm_threads)
residual_norm_kernel(const NormRule rule) {
  GPU_SHARED_MEMORY(memory);
  const auto& in = rule.in;
  using Row = RowTeam<Team, Groups>;
  const Row team(in.width, memory);
  const auto row = gpu::block_index() * Row::teams + team.number();
  if (!gpu::within(row < in.rows)) return;  // the same for the whole team
  typename Row::Values x, gain;
  add_residual(team, x, rule, row);
  team.template store<Fp32>(x, in.sum, row, rule.aligned);
  const auto moments = moments_of(team, x, in);
  if (gpu::thread_index() % (Team * gpu::warp_size) == 0) {
    if (in.centred) in.mean[row] = moments.mean;
    in.factor[row] = moments.factor;
  }
  team.load_floats(gain, in.gain, 0, rule.aligned_weights);
  team.for_each([&](int g, int i) { x[g][i] = (x[g][i] - moments.mean) * moments.factor * gain[g][i]; });
  if (in.bias != nullptr) {
    typename Row::Values bias;
    team.load_floats(bias, in.bias, 0, rule.aligned_weights);
    team.for_each([&](int g, int i) { x[g][i] += bias[g][i]; });
  }
  team.store(x, in.n, in.n_element, row, rule.aligned);
}

// A block takes every parts-th row of as many rows as it has teams, and stores its part of dgain and dbias.
template <int Team, int Groups>
class NormGradient {
 public:
  using Row = RowTeam<Team, Groups>;
  using Values = typename Row::Values;

  GPU_DEVICE NormGradient(const NormBackwardRule& rule, unsigned char* memory)
      : rule_(rule), in_(rule.in), norm_(rule.forward.in), team_(norm_.width, memory) {}

  GPU_DEVICE void run() const {
    Values gain, dgain, dbias;
    team_.load_floats(gain, norm_.gain, 0, rule_.forward.aligned_weights);
    team_.for_each([&](int g, int i) { dgain[g][i] = dbias[g][i] = 0; });
    auto row = gpu::block_index() * Row::teams + team_.number();
    for (; gpu::within(row < norm_.rows); row += rule_.parts * Row::teams) add_row(row, gain, dgain, dbias);
    if (in_.partial == nullptr) return;
    auto* partial = in_.partial + gpu::block_index() * 2 * norm_.width;
    team_.store_over_teams(dgain, partial);
    team_.store_over_teams(dbias, partial + norm_.width);
  }

 private:
  GPU_DEVICE void add_row(std::int64_t row, const Values& gain, Values& dgain, Values& dbias) const {
    const bool aligned = rule_.forward.aligned;
    typename Row::Words words;
    Values z, dn, dx;
    team_.load(words, in_.dn, norm_.n_element, row, aligned);
    team_.load_floats(z, norm_.sum, row, aligned);
    team_.for_each([&](int g, int i) { dx[g][i] = 0; });
    if (in_.dsum != nullptr) team_.load_floats(dx, in_.dsum, row, aligned);
    const float mean = norm_.centred ? norm_.mean[row] : 0.0f, factor = norm_.factor[row];
    team_.values(dn, words, norm_.n_element);
    float means[2] = {0, 0};  // of h z and of h
    team_.for_each([&](int g, int i) {
      z[g][i] = (z[g][i] - mean) * factor;
      dgain[g][i] += dn[g][i] * z[g][i];
      dbias[g][i] += dn[g][i];
      dn[g][i] *= gain[g][i];
      means[0] += dn[g][i] * z[g][i];
      means[1] += dn[g][i];
    });
    team_.add_over_row(means);
    const auto width = static_cast<float>(norm_.width);
    const float along = means[0] / width, shift = norm_.centred ? means[1] / width : 0.0f;
    team_.for_each([&](int g, int i) { dx[g][i] += factor * (dn[g][i] - along * z[g][i] - shift); });
    store_row(row, dx);
  }

  GPU_DEVICE void store_row(std::int64_t row, Values& dx) const {
    const auto& forward = rule_.forward;
    if (in_.dx != nullptr) team_.template store<Fp32>(dx, in_.dx, row, forward.aligned);
    if (in_.dy == nullptr) return;
    if (forward.drops) drop_row(team_, dx, forward, row);
    team_.store(dx, in_.dy, norm_.y_element, row, forward.aligned);
  }

  const NormBackwardRule& rule_;
  const ResidualNormBackward& in_;
  const ResidualNorm& norm_;
  Row team_;
};

template <int Team, int Groups>
GPU_KERNEL(norm_threads)
residual_norm_gradient_kernel(const NormBackwardRule rule) {
  GPU_SHARED_MEMORY(memory);
  NormGradient<Team, Groups>(rule, memory).run();
}

// dgain and dbias of the parts.
GPU_KERNEL(sum_threads)
residual_norm_sum_kernel(const NormBackwardRule rule) {
  GPU_SHARED_MEMORY(memory);
  const std::int64_t width = rule.in.forward.width, size = 2 * width;
  const auto at = gpu::block_index() * gpu::warp_size + lane_index();
  const float sum = sum_of_parts(rule.in.partial, rule.parts, size, at, reinterpret_cast<float*>(memory));
  if (warp_index() > 0 || !gpu::within(at < size)) return;
  float* target = at < width ? rule.in.dgain : rule.in.dbias;
  if (target != nullptr) target[at % width] = sum;
}

// Calls start.template operator()<Team, Groups>() for the width. Wider rows belong to more warps, because a lane keeps
// six numbers of each of its columns in backward.
template <class Start>
void with_row_team(int width, Start start) {
  const auto groups = [&](int team) { return (width + team * columns_of_warp - 1) / (team * columns_of_warp); };
  if (groups(1) <= 1) return start.template operator()<1, 1>();
  if (groups(1) <= 2) return start.template operator()<1, 2>();
  if (groups(1) <= 3) return start.template operator()<1, 3>();
  if (groups(1) <= 4) return start.template operator()<1, 4>();
  if (groups(norm_warps) <= 1) return start.template operator()<norm_warps, 1>();
  if (groups(norm_warps) <= 2) return start.template operator()<norm_warps, 2>();
  start.template operator()<norm_warps, 4>();
}

int teams_of_block(int width) {
  int teams = 1;
  with_row_team(width, [&]<int Team, int Groups>() { teams = RowTeam<Team, Groups>::teams; });
  return teams;
}

// Enough for several blocks on every multiprocessor, and few enough to be added.
std::int64_t parts_of(std::int64_t rows, int width) {
  constexpr std::int64_t most = 512;
  return std::min(most, blocks_for(rows, teams_of_block(width)));
}

bool has_aligned_groups(int width, std::initializer_list<const float*> floats, const void* rows, RowElement element,
                        const void* others, RowElement other_element) {
  return width % columns_of_lane == 0 && is_aligned_to(rows, bytes_of_four(element)) &&
         is_aligned_to(others, bytes_of_four(other_element)) &&
         std::all_of(floats.begin(), floats.end(), [](const float* data) { return is_aligned_to(data, 16); });
}

void require_possible(const ResidualNorm& in) {
  const auto require = [](bool condition, const char* what) {
    if (!condition) throw Error(ExitCode::failure, std::string("kernel of residual sum and norm: ") + what);
  };
  require(in.width >= 1 && in.width <= most_norm_width, "the width is not from 1 to 4096");
  require(in.rows <= std::numeric_limits<std::int32_t>::max(), "there are more rows than a grid holds");
}

NormRule rule_of(const ResidualNorm& in, bool aligned) {
  return {
      .in = in,
      .drop = DropRule(in.probability, in.number),
      .drops = in.probability > 0,
      .aligned = aligned,
      .aligned_weights = is_aligned_to(in.gain, 16) && is_aligned_to(in.bias, 16) && in.width % columns_of_lane == 0};
}

}  // namespace

std::int64_t residual_norm_partial_sums(std::int64_t rows, int width) { return parts_of(rows, width) * 2 * width; }

void residual_norm(const ResidualNorm& arguments, void* stream) {
  require_possible(arguments);
  if (arguments.rows == 0) return;
  const auto rule = rule_of(arguments, has_aligned_groups(arguments.width, {arguments.x, arguments.sum}, arguments.y,
                                                          arguments.y_element, arguments.n, arguments.n_element));
  with_row_team(arguments.width, [&]<int Team, int Groups>() {
    using Row = RowTeam<Team, Groups>;
    gpu::launch(residual_norm_kernel<Team, Groups>, blocks_for(arguments.rows, Row::teams), norm_threads,
                Row::forward_bytes, static_cast<gpu::Stream>(stream), rule);
  });
}

void residual_norm_backward(const ResidualNormBackward& arguments, void* stream_pointer) {
  const auto& in = arguments.forward;
  const auto stream = static_cast<gpu::Stream>(stream_pointer);
  require_possible(in);
  const auto aligned = has_aligned_groups(in.width, {in.sum, arguments.dsum, arguments.dx}, arguments.dn, in.n_element,
                                          arguments.dy, in.y_element);
  const NormBackwardRule rule{.forward = rule_of(in, aligned), .in = arguments, .parts = parts_of(in.rows, in.width)};
  if (in.rows > 0)
    with_row_team(in.width, [&]<int Team, int Groups>() {
      gpu::launch(residual_norm_gradient_kernel<Team, Groups>, rule.parts, norm_threads,
                  RowTeam<Team, Groups>::backward_bytes, stream, rule);
    });
  if (arguments.dgain == nullptr && arguments.dbias == nullptr) return;
  gpu::launch(residual_norm_sum_kernel, blocks_for(2 * in.width, gpu::warp_size), sum_threads,
              sum_threads * static_cast<int>(sizeof(float)), stream, rule);
}

}  // namespace metaformer::cuda
