#include "figures/scale.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace metaformer::figures {

namespace {

double round_step(double width, int wanted) {
  const double raw = width / std::max(1, wanted);
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 2.5, 5.0})
    if (raw <= factor * power * (1 + 1e-9)) return factor * power;
  return 10 * power;
}

std::string with_commas(std::string digits) {
  const auto start = digits.front() == '-' ? 1u : 0u;
  auto end = std::min(digits.find('.'), digits.size());
  while (end > start + 3) digits.insert(end -= 3, ",");
  return digits;
}

std::vector<Tick> linear_ticks(double low, double high, int wanted) {
  std::vector<Tick> ticks;
  const double step = round_step(high - low, wanted);
  const double first = std::ceil(low / step - 1e-6);
  for (double i = first; i * step <= high + 1e-6 * step; ++i) ticks.push_back({i * step, tick_text(i * step, step)});
  return ticks;
}

// Powers of ten; 2 and 5 between them where there are few.
std::vector<Tick> logarithmic_ticks(double low, double high, int wanted) {
  std::vector<Tick> ticks;
  const double decades = std::log10(high / low);
  const int stride = std::max(1, static_cast<int>(std::ceil(decades / std::max(1, wanted))));
  for (int power = static_cast<int>(std::floor(std::log10(low))); power <= std::ceil(std::log10(high)); ++power) {
    for (const double factor : {1.0, 2.0, 5.0}) {
      const double value = factor * std::pow(10.0, power);
      const bool named = factor == 1 ? power % stride == 0 : decades * 3 <= wanted;
      if (value >= low * (1 - 1e-9) && value <= high * (1 + 1e-9))
        ticks.push_back({value, named ? tick_text(value, value) : ""});
    }
  }
  return ticks;
}

}  // namespace

void Extent::add(double value) {
  if (!std::isfinite(value) || (scale_ == Scale::logarithmic && value <= 0)) return;
  low_ = std::min(low_, value);
  high_ = std::max(high_, value);
}

void Extent::add(const std::vector<double>& values) {
  for (const double value : values) add(value);
}

void Extent::widen(double fraction) {
  if (empty()) return;
  if (scale_ == Scale::linear) {
    const double more = fraction * (high_ - low_);
    low_ -= more;
    high_ += more;
  } else {
    const double factor = std::pow(high_ / low_, fraction);
    low_ /= factor;
    high_ *= factor;
  }
}

AxisScale::AxisScale(const Axis& axis, const Extent& data, double first_pixel, double last_pixel)
    : scale_(axis.scale), first_pixel_(first_pixel), last_pixel_(last_pixel) {
  const bool logarithmic = scale_ == Scale::logarithmic;
  low_ = data.empty() ? (logarithmic ? 1 : 0) : data.low();
  high_ = data.empty() ? (logarithmic ? 10 : 1) : data.high();
  if (axis.range) std::tie(low_, high_) = *axis.range;
  if (low_ < high_) return;
  // One value: it stands in the middle.
  const double around = low_ == 0 ? 1 : std::abs(low_) / 2;
  low_ = logarithmic ? low_ / 2 : low_ - around;
  high_ = logarithmic ? high_ * 2 : high_ + around;
}

bool AxisScale::shows(double value) const { return std::isfinite(value) && (scale_ == Scale::linear || value > 0); }

double AxisScale::operator()(double value) const {
  const double share =
      scale_ == Scale::linear ? (value - low_) / (high_ - low_) : std::log(value / low_) / std::log(high_ / low_);
  return first_pixel_ + share * (last_pixel_ - first_pixel_);
}

std::vector<Tick> AxisScale::ticks(int wanted) const {
  return scale_ == Scale::linear ? linear_ticks(low_, high_, wanted) : logarithmic_ticks(low_, high_, wanted);
}

std::string tick_text(double value, double step) {
  constexpr double largest = 1e7, smallest = 1e-5;
  if (std::abs(value) < 1e-9 * step) return "0";
  if (std::abs(value) >= largest || step < smallest) return fmt::format("{:.3g}", value);
  int decimals = 0;
  for (double rest = step; decimals < 6 && std::abs(rest - std::round(rest)) > 1e-6 * rest; rest *= 10) ++decimals;
  return with_commas(fmt::format("{:.{}f}", value, decimals));
}

}  // namespace metaformer::figures
