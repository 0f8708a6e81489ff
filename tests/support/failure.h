#pragma once
// What an action fails with.

#include <string>
#include <utility>

#include "base/error.h"

namespace metaformer {

// The Error that `action` throws, or {ok, ""}.
template <class Action>
std::pair<ExitCode, std::string> failure(Action action) {
  try {
    action();
  } catch (const Error& error) {
    return {error.code(), error.what()};
  }
  return {ExitCode::ok, ""};
}

}  // namespace metaformer
