//! Notifies the linker that Node provides the functions of Node-API, and makes the directory of the type
//! definitions, which napi-rs writes only if it exists.

fn main() {
    napi_build::setup();
    if let Some(folder) = std::env::var_os("NAPI_TYPE_DEF_TMP_FOLDER") {
        std::fs::create_dir_all(folder).expect("the target directory can be written");
    }
}
