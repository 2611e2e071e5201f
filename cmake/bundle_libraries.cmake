# Copyright The Sheaf Authors. SPDX-License-Identifier: Apache-2.0
# Run while a wheel is installed: copies the shared libraries that PROGRAMS and MODULES need into DESTINATION, but for those that
# any Linux with Python has. What is bundled is found by the RPATH of PROGRAMS and MODULES, which holds for what these libraries
# need in turn; so nothing in them is patched.
file(GET_RUNTIME_DEPENDENCIES
  EXECUTABLES ${PROGRAMS}
  MODULES ${MODULES}
  RESOLVED_DEPENDENCIES_VAR found
  UNRESOLVED_DEPENDENCIES_VAR missing
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|gcc_s|stdc\\+\\+)\\.so")
if(missing)
  message(FATAL_ERROR "these libraries were linked but are not found now: ${missing}")
endif()
file(MAKE_DIRECTORY ${DESTINATION})
foreach(library ${found})
  get_filename_component(name ${library} NAME)
  file(COPY_FILE ${library} ${DESTINATION}/${name})  # Follows links: a wheel has none.
endforeach()
