"""The login of people through an OpenID Connect provider."""
