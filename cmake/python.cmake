# Finds what the Python package is built with: an interpreter with headers, and nanobind installed for it. `./do` makes
# build/venv; SHEAF_PYTHON names another interpreter. Sets SHEAF_BUILD_PYTHON's default.
set(SHEAF_PYTHON "" CACHE FILEPATH "The Python to build for; empty: build/venv/bin/python where there is one")
if(SKBUILD)
  set(SHEAF_PYTHON ${Python_EXECUTABLE} CACHE FILEPATH "" FORCE)  # scikit-build-core: the one that the wheel is built by.
elseif(NOT SHEAF_PYTHON AND EXISTS ${PROJECT_SOURCE_DIR}/build/venv/bin/python)
  set(SHEAF_PYTHON ${PROJECT_SOURCE_DIR}/build/venv/bin/python CACHE FILEPATH "" FORCE)
endif()
set(found OFF)
if(SHEAF_PYTHON)
  execute_process(COMMAND ${SHEAF_PYTHON} -c "import sys; print(sys.abiflags)" OUTPUT_STRIP_TRAILING_WHITESPACE OUTPUT_VARIABLE flags)
  if(flags MATCHES "t")
    message(FATAL_ERROR "Sheaf does not support free-threaded Python (${SHEAF_PYTHON}): its stable ABI has none; use the ordinary build "
                        "of this version")
  endif()
  set(Python_EXECUTABLE ${SHEAF_PYTHON})
  find_package(Python 3.11 QUIET COMPONENTS Interpreter Development.Module)
  if(Python_Development.Module_FOUND)
    execute_process(COMMAND ${SHEAF_PYTHON} -m nanobind --cmake_dir OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET
                    OUTPUT_VARIABLE nanobind_ROOT)
    if(nanobind_ROOT)
      find_package(nanobind CONFIG QUIET)
      set(found ${nanobind_FOUND})
    endif()
  endif()
endif()
if(SHEAF_SANITIZE)
  set(found OFF)  # An interpreter without the sanitizer cannot load a module with it.
endif()
option(SHEAF_BUILD_PYTHON "Build the Python package" ${found})
if(SHEAF_BUILD_PYTHON AND NOT found)
  message(FATAL_ERROR "SHEAF_BUILD_PYTHON: no Python 3.11 with headers and nanobind (SHEAF_PYTHON='${SHEAF_PYTHON}'); run './do "
                      "python' once, which makes build/venv, or set SHEAF_PYTHON")
endif()
