#pragma once
// What all processes of a group must agree on. All of these functions are to be called by all of them.

#include <nlohmann/json.hpp>

#include "distributed/process_group.h"

namespace metaformer {

void wait_for_all(ProcessGroup& group);

// The text of rank 0.
std::string of_first(ProcessGroup& group, const std::string& text);

// Errors (exit code 2): a rank has another value than rank 0; of objects the first such member is named.
void require_same(ProcessGroup& group, const nlohmann::ordered_json& values);

// throw_if_stopped() of one process; throws Interrupted on all, also while a StopDeferral exists, once any is to stop.
void throw_if_any_stopped(ProcessGroup& group);

// Whether SIGUSR1 has arrived at any of them since the last call.
bool take_save_request_of_any(ProcessGroup& group);

}  // namespace metaformer
