# d3, which the report page embeds: D3_SCRIPT (d3.min.js) and D3_LICENCE (a text with its licence) of Debian's node-d3.
# Other versions may behave differently, so the script's SHA-256 must be D3_SHA256.
set(D3_SHA256 "63cdc8691107d063922c58ece1b9b4eeb9fef305429a55d3d962eea0812f1e03" CACHE STRING
  "SHA-256 of the d3.min.js to embed; the default is that of node-d3 5.16.0-10")
find_file(D3_SCRIPT d3.min.js PATHS /usr/share/nodejs/d3/dist NO_DEFAULT_PATH
  DOC "d3.min.js of Debian's package node-d3")
find_file(D3_LICENCE copyright PATHS /usr/share/doc/node-d3 NO_DEFAULT_PATH DOC "licence text of d3")
if(D3_SCRIPT)
  file(SHA256 "${D3_SCRIPT}" d3_digest)
  if(NOT d3_digest STREQUAL D3_SHA256)
    message(FATAL_ERROR "${D3_SCRIPT} has the SHA-256 ${d3_digest}, not ${D3_SHA256}. If it is a d3 5 that you trust, "
      "configure with -DD3_SHA256=${d3_digest}")
  endif()
endif()
include(FindPackageHandleStandardArgs)
find_package_handle_standard_args(D3 REQUIRED_VARS D3_SCRIPT D3_LICENCE)
mark_as_advanced(D3_SCRIPT D3_LICENCE D3_SHA256)
