#include "text/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>

#include "base/error.h"
#include "text/split_syntax.h"

namespace metaformer {

namespace {

PCRE2_SPTR as_units(std::string_view text) { return reinterpret_cast<PCRE2_SPTR>(text.data()); }

std::string message_of(int error) {
  std::array<PCRE2_UCHAR, 256> text{};
  pcre2_get_error_message(error, text.data(), text.size());
  return reinterpret_cast<const char*>(text.data());
}

template <auto free>
struct Free {
  template <class T>
  void operator()(T* object) const {
    free(object);
  }
};
using MatchData = std::unique_ptr<pcre2_match_data, Free<pcre2_match_data_free>>;

}  // namespace

struct SplitPattern::Code {
  std::unique_ptr<pcre2_code, Free<pcre2_code_free>> compiled;
};

SplitPattern::SplitPattern(std::string_view pattern, const std::string& source)
    : code_(std::make_unique<Code>()), source_(source) {
  const auto translated = to_pcre2(pattern, source);
  int error = 0;
  PCRE2_SIZE offset = 0;
  code_->compiled.reset(pcre2_compile(as_units(translated), translated.size(), PCRE2_UTF | PCRE2_UCP, &error, &offset,
                                      /*context=*/nullptr));
  if (code_->compiled == nullptr)
    throw Error(ExitCode::data, fmt::format("{}: not a regular expression: {}", source, message_of(error)));
  std::uint32_t matches_nothing = 0;
  pcre2_pattern_info(code_->compiled.get(), PCRE2_INFO_MATCHEMPTY, &matches_nothing);
  if (matches_nothing != 0)
    throw Error(ExitCode::data, source + ": a regular expression that matches the empty text is not supported");
  pcre2_jit_compile(code_->compiled.get(), PCRE2_JIT_COMPLETE);  // where it cannot, matching is slower
}

SplitPattern::~SplitPattern() = default;
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;
SplitPattern& SplitPattern::operator=(SplitPattern&&) noexcept = default;

void SplitPattern::split(std::string_view text, const std::function<void(std::string_view)>& use) const {
  const auto* code = code_->compiled.get();
  const MatchData match(pcre2_match_data_create(/*pairs=*/1, /*context=*/nullptr));
  const auto* place = pcre2_get_ovector_pointer(match.get());
  for (std::size_t at = 0; at < text.size();) {
    const auto find = [&](std::uint32_t options) {
      return pcre2_match(code, as_units(text), text.size(), at, PCRE2_NO_UTF_CHECK | options, match.get(), nullptr);
    };
    auto found = find(0);
    if (found == PCRE2_ERROR_JIT_STACKLIMIT) found = find(PCRE2_NO_JIT);
    if (found == PCRE2_ERROR_NOMATCH) return use(text.substr(at));
    if (found < 0) throw Error(ExitCode::data, fmt::format("{}: cannot be matched: {}", source_, message_of(found)));
    if (place[0] > at) use(text.substr(at, place[0] - at));
    use(text.substr(place[0], place[1] - place[0]));
    at = place[1];
  }
}

}  // namespace metaformer
