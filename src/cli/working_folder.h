#pragma once

namespace metaformer {

// Whether the working folder was gone when the program started.
bool working_folder_is_gone();

}  // namespace metaformer
